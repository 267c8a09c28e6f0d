"""One image: every kind of file, cropped and resized."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from data.image_files import GREYS, Array, noise, only, put, resized, stored
from scorefield.data import load, pictures
from scorefield.data.pictures import Fit, decode, describe_fit, fit_image, fit_to_model, flat, open_image

COLOURS = noise(6, 5, 3)
ALPHA = np.linspace(0, 255, 30).astype(np.uint8).reshape(6, 5)


# ---------------------------------------------------------------- every kind of image file


def over_white(colours: Array, alpha: Array) -> Array:
    a = alpha[..., None] / 255
    return np.floor(colours * a + 255 * (1 - a) + 0.5)


@pytest.mark.parametrize("ending", ["png", "bmp", "webp", "tif", "tiff", "PNG", "Bmp", "WebP", "TIF"])
def test_rgb(folder: Path, ending: str) -> None:
    put(folder / f"a.{ending}", COLOURS)
    assert np.array_equal(only(folder), COLOURS)


@pytest.mark.parametrize("ending", ["jpg", "jpeg", "JPG", "JPEG"])
def test_jpeg(folder: Path, ending: str) -> None:
    path = put(folder / f"a.{ending}", np.full((16, 16, 3), (200, 100, 50), np.uint8), quality=100)
    assert np.array_equal(only(folder), stored(path)[1])
    assert abs(only(folder) - np.array([200.0, 100, 50])).max() <= 2


@pytest.mark.parametrize("ending", ["png", "bmp", "tif"])
def test_grey_has_one_channel(folder: Path, ending: str) -> None:
    put(folder / f"a.{ending}", GREYS)
    assert np.array_equal(only(folder), GREYS[..., None])


@pytest.mark.parametrize("ending", ["png", "bmp", "tif"])
def test_one_bit(folder: Path, ending: str) -> None:
    Image.fromarray(GREYS > 127).save(folder / f"a.{ending}")
    assert stored(folder / f"a.{ending}")[0] == "1"
    assert np.array_equal(only(folder), np.where(GREYS > 127, 255, 0)[..., None])


def test_sixteen_bits_are_scaled_not_clipped(folder: Path) -> None:
    values = np.array([[0, 128, 129, 385, 386], [257 * 7, 256, 32767, 65534, 65535]], np.uint16)
    put(folder / "a.png", values)
    assert only(folder)[..., 0].tolist() == [[0, 0, 1, 1, 2], [7, 1, 127, 255, 255]]
    values = noise(50, 50, dtype=np.uint16)
    put(folder / "a.png", values)
    assert np.array_equal(only(folder)[..., 0], np.round(values * (255 / 65535)))


def test_rgba_over_white(folder: Path) -> None:
    put(folder / "a.png", np.dstack([COLOURS, ALPHA]))
    assert np.array_equal(only(folder), over_white(COLOURS, ALPHA))


def test_grey_with_opacity_over_white_stays_grey(folder: Path) -> None:
    put(folder / "a.png", np.dstack([GREYS, ALPHA]))
    assert stored(folder / "a.png")[0] == "LA"
    assert np.array_equal(only(folder), over_white(GREYS[..., None], ALPHA))


def palette_image(colours: Array) -> tuple[Image.Image, Array]:
    """An image with this palette, and its palette indices."""
    indices = np.random.default_rng(1).integers(0, len(colours), (6, 5), dtype=np.uint8)
    image = Image.fromarray(indices)
    image.putpalette(colours.tobytes())
    assert image.mode == "P"
    return image, indices


def test_palette(folder: Path) -> None:
    colours = noise(16, 3, seed=2)
    image, indices = palette_image(colours)
    for ending in ("png", "bmp"):
        image.save(folder / f"a.{ending}")
    for pixels in load(str(folder)).pixels:
        assert np.array_equal(pixels, colours[indices])


def test_palette_with_one_transparent_colour(folder: Path) -> None:
    colours = noise(16, 3, seed=2)
    image, indices = palette_image(colours)
    image.save(folder / "a.png", transparency=3)
    assert np.array_equal(only(folder), np.where(indices[..., None] == 3, 255, colours[indices]))


def test_palette_with_an_opacity_for_each_colour(folder: Path) -> None:
    colours, alpha = noise(16, 3, seed=2), noise(16, seed=3)
    image, indices = palette_image(colours)
    image.save(folder / "a.png", transparency=alpha.tobytes())
    assert np.array_equal(only(folder), over_white(colours[indices], alpha[indices]))


def test_palette_of_greys_is_grey(folder: Path) -> None:
    greys = noise(16, 1, seed=2)
    image, indices = palette_image(greys.repeat(3, 1))
    image.save(folder / "a.png")
    assert stored(folder / "a.png")[0] == "P"
    assert np.array_equal(only(folder), greys[indices])


def test_one_transparent_colour_without_a_palette(folder: Path) -> None:
    Image.fromarray(COLOURS).save(folder / "a.png", transparency=tuple(map(int, COLOURS[2, 1])))
    expected = COLOURS.copy()
    expected[(COLOURS[2, 1] == COLOURS).all(-1)] = 255
    assert np.array_equal(only(folder), expected)
    Image.fromarray(GREYS).save(folder / "a.png", transparency=int(GREYS[2, 1]))
    assert np.array_equal(only(folder)[..., 0], np.where(GREYS[2, 1] == GREYS, 255, GREYS))
    deep = noise(6, 5, dtype=np.uint16)
    Image.fromarray(deep).save(folder / "a.png", transparency=int(deep[2, 1]))
    assert np.array_equal(only(folder)[..., 0], np.where(deep == deep[2, 1], 255, np.round(deep / 257)))


def test_cmyk(folder: Path) -> None:
    """Red, green and blue are what their ink and black let through: (1 − ink)(1 − black)."""
    blocks = noise(2, 2, 4, seed=5).repeat(8, 0).repeat(8, 1)
    Image.frombytes("CMYK", (16, 16), blocks.tobytes()).save(folder / "a.jpg", quality=100)
    mode, values = stored(folder / "a.jpg")
    inks = values / 255
    assert mode == "CMYK"
    assert abs(values - blocks.astype(float)).max() <= 4  # the file holds what was written
    assert abs(only(folder) - 255 * (1 - inks[..., :3]) * (1 - inks[..., 3:])).max() <= 1


ORIENTATIONS: dict[int, Callable[[Array], Array]] = {
    1: lambda image: image,
    2: np.fliplr,
    3: lambda image: np.rot90(image, 2),
    4: np.flipud,
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: np.rot90(image, -1),  # shown rotated clockwise
    7: lambda image: np.rot90(image, 2).swapaxes(0, 1),
    8: lambda image: np.rot90(image, 1),
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("pixels", [COLOURS, GREYS, noise(6, 5, dtype=np.uint16)], ids=["rgb", "grey", "deep"])
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_exif_orientation(folder: Path, orientation: int, pixels: Array, ending: str) -> None:
    put(folder / f"a.{ending}", pixels, orientation=orientation)
    expected = ORIENTATIONS[orientation](pixels if pixels.ndim == 3 else pixels[..., None])
    assert np.array_equal(only(folder), np.round(expected / 257) if pixels.dtype == np.uint16 else expected)


def test_exif_orientation_of_a_jpeg(folder: Path) -> None:
    path = put(folder / "a.jpg", COLOURS, orientation=6)
    assert np.array_equal(only(folder), np.rot90(stored(path)[1], -1))


@pytest.mark.parametrize(("name", "kind"), [("a.gif", "GIF"), ("a.png", "GIF"), ("a.tif", "TIFF"), ("a.jpg", "TIFF")])
def test_the_first_frame_or_page(folder: Path, name: str, kind: str) -> None:
    """The content decides what a file is, not its ending."""
    frames = [Image.fromarray(np.full((4, 4), value, np.uint8)) for value in (10, 200)]
    frames[0].save(folder / name, format=kind, save_all=True, append_images=frames[1:])
    assert only(folder).tolist() == [[[10]] * 4] * 4


def test_a_gif_with_colours_and_a_transparent_one(folder: Path) -> None:
    colours = noise(16, 3, seed=2)
    image, indices = palette_image(colours)
    image.save(folder / "a.gif", transparency=3)
    assert np.array_equal(only(folder), np.where(indices[..., None] == 3, 255, colours[indices]))


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_compressed_tiffs(folder: Path, compression: str) -> None:
    Image.fromarray(COLOURS).save(folder / "a.tiff", compression=compression)
    assert np.array_equal(only(folder), COLOURS)


@pytest.mark.parametrize("mode", ["I;16", "I;16B"])
def test_a_tiff_of_sixteen_bits(folder: Path, mode: str) -> None:
    deep = noise(6, 5, dtype=np.uint16)
    order = ">u2" if mode == "I;16B" else "<u2"
    Image.frombytes(mode, (5, 6), deep.astype(order).tobytes()).save(folder / "a.tif")
    assert np.array_equal(only(folder)[..., 0], np.round(deep / 257))


def test_large_images_of_sixteen_bits_are_converted_in_stripes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = noise(50, 7, dtype=np.uint16)
    put(folder / "a.png", deep)
    for stripe in (1, 7, 8, 21, 10_000):
        monkeypatch.setattr(pictures, "STRIPE", stripe)
        assert np.array_equal(np.asarray(decode(folder / "a.png")), np.round(deep / 257))


@pytest.mark.parametrize("stripe", [1, 5, 7, 10, 10_000])
def test_transparency_and_palettes_are_converted_in_stripes(stripe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "STRIPE", stripe)
    for pixels in (COLOURS, GREYS[..., None]):
        shown = pictures.flat(Image.fromarray(np.dstack([pixels, ALPHA])))
        assert np.array_equal(np.asarray(shown).reshape(pixels.shape), over_white(pixels, ALPHA))
    colours = noise(16, 1, seed=2).repeat(3, 1)
    image, indices = palette_image(colours)
    assert np.array_equal(np.asarray(pictures.flat(image)), colours[indices][..., 0])
    colours[indices[-1, -1], 1] ^= 1  # a colour, in the last stripe at least
    image, indices = palette_image(colours)
    assert np.array_equal(np.asarray(pictures.flat(image)), colours[indices])


def test_sixteen_bits_take_little_memory() -> None:
    """A file of a few kB may hold millions of pixels: 8 MB as stored, and 4 MB as bytes."""
    (file := io.BytesIO()).name = "deep.png"
    Image.fromarray(np.zeros((2000, 2000), np.uint16)).save(file)
    tracemalloc.start()
    try:
        decode(file)
        assert tracemalloc.get_traced_memory()[1] < 40e6  # with all in 64 bits at once, 130 MB
    finally:
        tracemalloc.stop()


def test_floating_point_numbers_are_refused(folder: Path) -> None:
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(folder / "a.tif")
    with pytest.raises(
        ValueError, match=r"a.tif cannot be read .* floating-point numbers.*save them with 8 or 16 bits"
    ):
        open_image(folder / "a.tif")


def test_pillow_says_nothing_about_odd_files(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A TIFF with a tag that claims to be longer than the file is read; one with 2048 samples in a pixel is not."""
    Image.fromarray(COLOURS).save(folder / "a.tif", description="a description")
    content = (folder / "a.tif").read_bytes()
    where = {tag: content.index(struct.pack("<HHI", tag, kind, n)) for tag, kind, n in ((270, 2, 14), (277, 3, 1))}

    def with_tag(*values: int) -> bytes:
        return content[: where[values[0]]] + struct.pack("<HHII", *values) + content[where[values[0]] + 12 :]

    (folder / "a.tif").write_bytes(with_tag(270, 2, 2_000_000, 152))
    assert np.array_equal(np.asarray(open_image(folder / "a.tif")), COLOURS)
    assert load(str(folder)).shape == (3, 6, 5)
    (folder / "a.tif").write_bytes(with_tag(277, 3, 1, 2048))
    with pytest.raises(ValueError, match=r"a.tif cannot be read as an image"):
        open_image(folder / "a.tif")
    assert capfd.readouterr() == ("", "")


def test_the_size_is_checked_before_the_pixels_are_decoded(folder: Path) -> None:
    content = put(folder / "a.png", noise(6, 5), orientation=6).read_bytes()
    seen: list[tuple[int, int]] = []
    assert decode(io.BytesIO(content), check_size=seen.append).size == (6, 5)
    assert seen == [(5, 6)]  # as in the file, before it is rotated

    def refuse(size: tuple[int, int]) -> None:
        raise ValueError(f"{size} is too large")

    with pytest.raises(ValueError, match="is too large"):
        decode(io.BytesIO(content[:-30]), check_size=refuse)  # its pixels are damaged


def test_images_that_a_user_names(folder: Path) -> None:
    assert np.array_equal(np.asarray(open_image(put(folder / "a.png", COLOURS))), COLOURS)
    (folder / "text.png").write_text("no image")
    for path, kind, message in (
        (folder, ValueError, r"is a folder \(name one image in it\)"),
        (folder / "none.png", FileNotFoundError, r"no image .*none.png \(check its name\)"),
        (
            folder / "text.png",
            ValueError,
            r"text.png cannot be read as an image: it holds no PNG.*save it again as PNG, .*TIFF",
        ),
    ):
        with pytest.raises(kind, match=message):
            open_image(path)


@pytest.mark.parametrize(
    ("crop", "size", "expected"),
    [
        (None, (50, 40), None),
        (30, (50, 40), 30),
        (30, (12, 8), None),
        (8, (12, 8), None),
        (30, (29, 40), None),
        (30, (30, 40), 30),
    ],
)
def test_an_image_is_fitted_to_a_model_as_its_training_images_were(
    crop: int | None, size: tuple[int, int], expected: int | None
) -> None:
    """Images of the model's size, here 8 × 12 pixels (H × W), or smaller than the crop are not cropped."""
    assert fit_to_model((3, 8, 12), crop, size) == Fit(expected, (8, 12))


# ---------------------------------------------------------------- crop and resize


@pytest.mark.parametrize("side", [2, 3, 6])
def test_crop_takes_the_centre(folder: Path, side: int) -> None:
    put(folder / "a.png", pixels := noise(6, 9, 3))
    top, left = (6 - side) // 2, (9 - side) // 2
    assert np.array_equal(only(folder, crop=side), pixels[top : top + side, left : left + side])


def test_a_crop_larger_than_an_image(folder: Path) -> None:
    put(folder / "a.png", noise(8, 8))
    put(folder / "b.png", noise(8, 6))
    with pytest.raises(ValueError, match=r"cannot crop 7×7 out of .*b.png, which is 8×6 \(crop at most 6"):
        load(str(folder), crop=7)


@pytest.mark.parametrize(
    ("size", "target", "part"),
    [
        ((8, 8), 4, np.s_[:, :]),
        ((8, 8), (8, 8), np.s_[:, :]),
        ((9, 5), 5, np.s_[2:7, :]),  # of the right size: not blurred
        ((8, 5), 4, np.s_[1:6, :]),
        ((6, 12), (4, 4), np.s_[:, 3:9]),
        ((12, 12), (3, 6), np.s_[3:9, :]),
        ((12, 12), (6, 3), np.s_[:, 3:9]),
        ((4, 8), 8, np.s_[:, 2:6]),  # enlarged
        ((30, 20), (3, 2), np.s_[:, :]),
    ],
)
def test_resizing_keeps_the_aspect_ratio(
    folder: Path, size: tuple[int, int], target: int | tuple[int, int], part: tuple[slice, slice]
) -> None:
    pixels = noise(*size, 3)
    put(folder / "a.png", pixels)
    height, width = (target, target) if isinstance(target, int) else target
    expected = resized(pixels[part], height, width)
    assert abs(only(folder, image_size=target) - expected).max() <= 1
    if pixels[part].shape[:2] == (height, width):
        assert np.array_equal(only(folder, image_size=target), pixels[part])


def test_crop_comes_before_resize(folder: Path) -> None:
    put(folder / "a.png", pixels := noise(20, 16, 3))
    assert abs(only(folder, crop=8, image_size=4) - resized(pixels[6:14, 4:12], 4, 4)).max() <= 1


@pytest.mark.parametrize("wrong", [0, -1, (4,), (4, 4, 3), (4, 0)])
def test_impossible_sizes(folder: Path, wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="image_size must be one positive number, or height and width"):
        load(str(folder), image_size=wrong)
    with pytest.raises(ValueError, match="crop must be positive"):
        load(str(folder), crop=0)


# ---------------------------------------------------------------- what a user is told


@pytest.mark.parametrize(
    ("sizes", "fit", "words"),
    [
        ([(8, 8)], Fit(), ""),
        ([(8, 8)], Fit(size=(8, 8)), ""),
        ([(8, 8)], Fit(8, (8, 8)), ""),
        ([(30, 30)], Fit(size=(8, 8)), "shrunk to 8 × 8, from 30 × 30 pixels (height × width)"),
        ([(4, 4)], Fit(size=(8, 8)), "enlarged to 8 × 8, from 4 × 4 pixels (height × width)"),
        ([(4, 4), (30, 30)], Fit(size=(8, 8)), "resized to 8 × 8, from 4 × 4 ... 30 × 30 pixels (height × width)"),
        ([(8, 8), (30, 30)], Fit(size=(8, 8)), "resized to 8 × 8, from 8 × 8 ... 30 × 30 pixels (height × width)"),
        ([(30, 20), (20, 40)], Fit(size=(20, 20)),
         "cropped to the middle 20 × 20, from 30 × 20 ... 20 × 40 pixels (height × width)"),
        ([(30, 20)], Fit(20), "cropped to the middle 20 × 20, from 30 × 20 pixels (height × width)"),
        ([(30, 20)], Fit(size=(20, 20)), "cropped to the middle 20 × 20, from 30 × 20 pixels (height × width)"),
        ([(30, 20)], Fit(size=(8, 8)),
         "cropped to the middle 20 × 20 and shrunk to 8 × 8, from 30 × 20 pixels (height × width)"),
        ([(218, 178)], Fit(140, (32, 32)),
         "cropped to the middle 140 × 140 and shrunk to 32 × 32, from 218 × 178 pixels (height × width)"),
        ([(9, 12)], Fit(size=(6, 4)),
         "cropped to the middle 9 × 6 and shrunk to 6 × 4, from 9 × 12 pixels (height × width)"),
        ([(60, 80), (20, 30), (100, 40)], Fit(size=(8, 8)),
         "cropped to the middle and shrunk to 8 × 8, from 20 × 30 ... 60 × 80 pixels (height × width)"),
    ],
)  # fmt: skip
def test_what_is_done_to_images_is_told(sizes: list[tuple[int, int]], fit: Fit, words: str) -> None:
    assert describe_fit(sizes, fit) == words


@pytest.mark.parametrize("kind", ["folder", "array"])
def test_images_that_are_cropped_or_shrunk_are_noted_each_time(folder: Path, tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / "a.npy", pixels := noise(3, 12, 10, 3))
    for k, image in enumerate(pixels):
        put(folder / f"{k}.png", image)
    source = str(folder if kind == "folder" else tmp_path / "a.npy")
    for _ in range(2):  # the second time from the cache
        images = load(source, image_size=4)
        change = "cropped to the middle 10 × 10 and shrunk to 4 × 4, from 12 × 10 pixels (height × width)"
        assert images.notes == images.first(1).notes == (f"the images of {source} are {change}",)
    assert load(source).notes == ()


def test_an_image_in_other_colours_than_the_models_is_noted() -> None:
    colour, grey = Image.fromarray(COLOURS), Image.fromarray(GREYS)
    assert fit_image(colour, "a", 3, Fit())[1] == fit_image(grey, "a", 1, Fit())[1] == []
    pixels, (note,) = fit_image(colour, "a.png", 1, Fit())
    assert note == "a.png has colours and the model's images are grey: only its brightness is used"
    assert np.array_equal(pixels[..., 0], np.asarray(colour.convert("L")))
    pixels, (note,) = fit_image(grey, "a.png", 3, Fit())
    assert note == "a.png is grey and the model's images have colours: red, green and blue are the same in it"
    assert np.array_equal(pixels, GREYS[..., None].repeat(3, -1))
    pixels, notes = fit_image(colour, "a.png", 1, Fit(size=(3, 3)))
    assert notes[1:] == ["a.png is cropped to the middle 5 × 5 and shrunk to 3 × 3, from 6 × 5 pixels (height × width)"]
    assert pixels.shape == (3, 3, 1)


def test_grey_in_the_mode_of_colours_is_no_colour() -> None:
    """As a drawing in a browser is: its three channels are equal, so that nothing is lost."""
    drawn = Image.fromarray(GREYS).convert("RGBA")
    pixels, notes = fit_image(flat(drawn), "a.png", 1, Fit())
    assert notes == []
    assert np.array_equal(pixels[..., 0], GREYS)


# ---------------------------------------------------------------- what is told about files


def traits_of(path: Path) -> set[str]:
    found = set[str]()
    decode(path, tell=found.add)
    return found


def test_what_is_told_of_odd_files(folder: Path) -> None:
    """One file for each trait, and files that only look as if they had it."""
    frames = [Image.fromarray(noise(6, 5, 3, seed=seed)) for seed in range(3)]
    opaque, sixteen = np.dstack([COLOURS, np.full(COLOURS.shape[:2], 255, np.uint8)]), noise(6, 5, dtype=np.uint16)
    clear = opaque.copy()
    clear[2, 3, 3] = 254
    for name in ("a.gif", "a.webp", "a.png", "a.tif"):
        frames[0].save(folder / name, save_all=True, append_images=frames[1:])
        assert traits_of(folder / name) == {"frames"}, name
    frames[0].save(folder / "one.gif")
    assert traits_of(folder / "one.gif") == set()
    for orientation, told in ((1, set[str]()), (3, {"turned"}), (8, {"turned"})):
        assert traits_of(put(folder / "e.jpg", COLOURS, orientation=orientation)) == told
    assert traits_of(put(folder / "opaque.png", opaque)) == set()
    assert traits_of(put(folder / "clear.png", clear)) == {"clear"}
    assert traits_of(put(folder / "deep.png", sixteen)) == {"deep"}
    Image.fromarray(sixteen).save(folder / "deep.tif")
    assert traits_of(folder / "deep.tif") == {"deep"}
    Image.fromarray(COLOURS).convert("CMYK").save(folder / "c.jpg")
    assert traits_of(folder / "c.jpg") == {"print"}
    for made, told in ((ImageCms.createProfile("sRGB"), set[str]()), (ImageCms.createProfile("XYZ"), {"profile"})):
        profile = ImageCms.ImageCmsProfile(made).tobytes()
        Image.fromarray(COLOURS).save(folder / "p.jpg", icc_profile=profile)
        assert traits_of(folder / "p.jpg") == told
    Image.fromarray(COLOURS[..., 0]).save(folder / "g.jpg", icc_profile=profile)
    assert traits_of(folder / "g.jpg") == set()


def test_traits_are_counted_and_told_each_time(folder: Path) -> None:
    for name in "abc":
        put(folder / f"{name}.png", noise(6, 5, dtype=np.uint16))
    wanted = [f"of 16 bits per channel, rounded to 8: all 3 images in {folder}"]
    assert [list(load(str(folder)).notes) for _ in range(2)] == [wanted, wanted]
    put(folder / "d.png", noise(6, 5))
    assert load(str(folder)).notes == (f"of 16 bits per channel, rounded to 8: 3 of the 4 images in {folder}",)


def test_sixteen_bits_of_colour_keep_their_range(folder: Path) -> None:
    """A PNG of 16 bits for each of red, green and blue, which Pillow cannot write."""
    values = noise(2, 3, 3, dtype=np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", 3, 2, 16, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    chunks = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    assert traits_of(folder / "a.png") == {"deep"}
    assert np.abs(only(folder).astype(float) - values / 257).max() <= 1
