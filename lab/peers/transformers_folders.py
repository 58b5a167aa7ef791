"""Loads folders by transformers and compares the outputs of pairs.

    python3 transformers_folders.py FOLDERS

Each folder NAME below FOLDERS has two models: NAME/before and NAME/after, as
FARFIELD_GIVE_BACK=FOLDERS go test ./internal/published -run GiveBack writes them. A tuned
model has NAME/expected.npz in place of NAME/before, with the logits of some ids.
Exits with 1 if an output differs by more than 2e-6 of its largest number, a tuned
model's by more than 2e-5.
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers


def outputs(folder):
    """Returns the outputs of the model of a folder for fixed inputs."""
    config = json.loads((folder / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(folder, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(1)
    if config["model_type"] == "vit":
        size = config["image_size"]
        given = {"pixel_values": torch.randn(2, config["num_channels"], size, size, generator=generator)}
    else:
        ids = torch.randint(3, config["vocab_size"], (2, 12), generator=generator)
        given = {"input_ids": ids}
        if config["model_type"] == "bart":
            given["decoder_input_ids"] = ids[:, :5]
        elif "Sequence" in config["architectures"][0]:
            given = {"input_ids": ids[:1]}
    with torch.no_grad():
        result = model(**given)
    return result.logits if "logits" in result else result.last_hidden_state


def tuned(folder):
    """Returns the expected logits of a tuned model, and the logits of its folder."""
    given = numpy.load(folder / "expected.npz")
    config = json.loads((folder / "after" / "config.json").read_text())
    assert config["label2id"] == {"no": 0, "perhaps": 1, "yes": 2}, config
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "after", attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(given["input_ids"].tolist())).logits
    return torch.tensor(given["logits"].tolist()), logits


def main():
    transformers.logging.set_verbosity_error()
    torch.cuda.is_current_stream_capturing = lambda: False
    transformers.utils.import_utils.is_cuda_stream_capturing = lambda: False
    failed = 0
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        most = 2e-6
        if (folder / "expected.npz").exists():
            (x, y), most = tuned(folder), 2e-5
        else:
            x, y = outputs(folder / "before"), outputs(folder / "after")
        share = float((x - y).abs().max() / x.abs().max())
        failed += not share <= most
        print(f"{folder.name}: {share:.2g} of the largest output")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
