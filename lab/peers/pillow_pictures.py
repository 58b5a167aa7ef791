"""Makes pictures with the pixels that Pillow and transformers give them.

    python3 pillow_pictures.py dataset/testdata/photos internal/published/testdata/pictures
    python3 pillow_pictures.py FOLDER/photos FOLDER/pictures 200

The first command writes the files of the tests, the second writes others of many sizes:

    FARFIELD_PICTURES=FOLDER go test ./internal/dataset ./internal/published -run Pillow -v
"""

import json
import pathlib
import random
import sys

import numpy
import PIL.Image
import PIL.ImageOps
import transformers

FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
PROCESSORS = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, "resample": 2, "do_resize": True,
            "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    "imagenet": {"feature_extractor_type": "ViTFeatureExtractor", "size": 16, "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "levels": {"image_processor_type": "ViTImageProcessor", "size": 16, "do_rescale": False, "image_mean": [120, 110, 100], "image_std": [60, 61, 62]},
    "shares": {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, "resample": 0, "do_normalize": False},
    "deit": {"image_processor_type": "DeiTImageProcessor", "size": {"height": 21, "width": 20}, "crop_size": {"height": 16, "width": 16}},
}


def scene(width, height, seed):
    """Returns a picture of waves and noise [height,width,3]."""
    draw = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[:height, :width]
    waves = [128 + 90 * numpy.sin(x / a + y / b + c) for a, b, c in draw.uniform(2, 9, (3, 3))]
    noise = draw.normal(0, 40, (height, width, 3))
    return numpy.clip(numpy.stack(waves, -1) + noise, 0, 255).astype(numpy.uint8)


def write_photos(out, count):
    """Writes files of many kinds, and what convert("RGB") makes of each."""
    out.mkdir(parents=True, exist_ok=True)
    exif = PIL.Image.Exif()
    for i in range(count):
        w, h = (21, 13) if count == 1 else (random.randint(1, 90), random.randint(1, 90))
        pixels = scene(w, h, i)
        rgb = PIL.Image.fromarray(pixels)
        grey = rgb.convert("L")
        alpha = PIL.Image.fromarray(numpy.dstack([pixels, pixels[..., :1]]))
        save = {
            "rgb.png": (rgb, {}),
            "alpha.png": (alpha, {}),
            "grey.png": (grey, {}),
            "grey_alpha.png": (alpha.convert("LA"), {}),
            "bits.png": (grey.convert("1"), {}),
            "palette.png": (rgb.quantize(20), {"transparency": bytes(range(20))}),
            "key.png": (rgb, {"transparency": tuple(int(x) for x in pixels[0, 0])}),
            "444.jpg": (rgb, {"subsampling": 0, "quality": 90}),
            "422.jpg": (rgb, {"subsampling": 1, "quality": 80}),
            "420.jpg": (rgb, {"subsampling": 2, "quality": 75}),
            "progressive.jpg": (rgb, {"subsampling": 2, "progressive": True, "quality": 60}),
            "grey.jpg": (grey, {}),
            "cmyk.jpg": (rgb.convert("CMYK"), {"quality": 90}),
        }
        for orientation in range(1, 9):
            exif[0x0112] = orientation
            save[f"turned{orientation}.jpg"] = (rgb, {"exif": exif.tobytes(), "quality": 85})
        save["turned6.png"] = (rgb, {"exif": bytes(save["turned6.jpg"][1]["exif"])})
        for name, (image, options) in save.items():
            path = out / f"{i:03}_{name}"
            image.save(path, **options)
            with PIL.Image.open(path) as read:
                levels = numpy.asarray(PIL.ImageOps.exif_transpose(read).convert("RGB"))
                PIL.Image.fromarray(levels).save(str(path) + ".want.png", optimize=True)


def write_pictures(out, count):
    """Writes resized pictures and pixel_values."""
    (out / "resized").mkdir(parents=True, exist_ok=True)
    for i in range(count):
        w, h = (23, 37) if count == 1 else (random.randint(1, 300), random.randint(1, 300))
        source = PIL.Image.fromarray(scene(w, h, 1000 + i))
        source.save(out / f"{i:03}.png", optimize=True)
        sizes = [(16, 16), (30, 11), (23, 40)] if count == 1 else [(random.randint(1, 300), random.randint(1, 300)), (224, 224), (w, 224)]
        for number, name in enumerate(FILTERS):
            for size in sizes:
                source.resize(size, number).save(out / "resized" / f"{i:03}_{number}_{size[1]}_{size[0]}.png", optimize=True)
        for name, config in PROCESSORS.items():
            folder = out / "processed" / f"{i:03}_{name}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "preprocessor_config.json").write_text(json.dumps(config))
            kind = config.get("image_processor_type", "ViTImageProcessor")
            made = find_processor(kind).from_pretrained(folder)
            values = made(images=source, return_tensors="np")["pixel_values"]
            numpy.save(folder / "pixel_values.npy", numpy.asarray(values, numpy.float32))


def find_processor(kind):
    """Returns the class that resizes by Pillow."""
    return getattr(transformers, kind + "Pil", None) or getattr(transformers, kind)


if __name__ == "__main__":
    random.seed(7)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    write_photos(pathlib.Path(sys.argv[1]), count)
    write_pictures(pathlib.Path(sys.argv[2]), count)
