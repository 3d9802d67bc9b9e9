"""What a network wants to see travels with it: into artifacts, exported files, evaluation and prediction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcshrink as pcs
from pcshrink.artifact import read
from pcshrink.artifact.record import HEAD
from pcshrink.artifact.store import sha256
from pcshrink.common.preprocessing import IMAGENET
from pcshrink.data import DataConfig, Preprocessing, load_dataset, read_images
from pcshrink.errors import CheckpointError, ConfigError, DataError
from pcshrink.export import export_onnx
from pcshrink.export.onnx import read_preprocessing
from pcshrink.models import create, usual_preprocessing
from pcshrink.runtime.onnxruntime import onnx_session
from pcshrink.train.again import evaluate_saved
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.run import train

Image = pytest.importorskip("PIL.Image")

SEEN = Preprocessing(
    input_size=(3, 12, 12), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), resize=16, interpolation="bicubic",
    classes=("cat", "dog", "eel"),
)  # fmt: skip
NET = {"num_classes": 3, "image_size": 12}


def pictures(root: Path, names: tuple[str, ...] = ("cat", "dog", "eel"), count: int = 4) -> Path:
    for split in ("train", "val"):
        for number, name in enumerate(names):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                noise = np.random.default_rng(100 * number + index).integers(0, 256, (20, 26, 3), dtype=np.uint8)
                Image.fromarray(noise).save(root / split / name / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("saved")
    return pcs.save(folder, create("resnet20", **NET), None, "pcshrink:resnet20", builder_args=NET, preprocessing=SEEN)


class TestUsual:
    def test_timm_by_name_and_by_model(self) -> None:
        pytest.importorskip("timm")
        found = usual_preprocessing("timm:resnet18.a1_in1k")
        assert (found.input_size, found.resize, found.interpolation) == ((3, 224, 224), 235, "bicubic")
        inception = usual_preprocessing("timm:inception_v4.tf_in1k")
        assert (inception.input_size, inception.mean) == ((3, 299, 299), (0.5, 0.5, 0.5))
        assert usual_preprocessing(create("timm:resnet18.a1_in1k")) == found

    def test_a_network_that_stretches_its_images(self) -> None:
        pytest.importorskip("timm")
        assert usual_preprocessing("timm:convnext_base.fb_in22k_ft_in1k_384").resize == 0

    def test_torchvision(self) -> None:
        pytest.importorskip("torchvision")
        assert usual_preprocessing("torchvision:resnet18") == IMAGENET
        assert usual_preprocessing("torchvision:resnet50").resize == 232
        assert usual_preprocessing("torchvision:inception_v3").input_size == (3, 299, 299)

    def test_what_the_network_is_made_with_counts(self) -> None:
        pytest.importorskip("timm")
        vit = usual_preprocessing("timm:test_vit", {"img_size": 64, "num_classes": 3})
        assert (vit.input_size, vit.resize, vit.mean, vit.interpolation) == (
            (3, 64, 64),
            67,
            (0.5, 0.5, 0.5),
            "bicubic",
        )
        grey = usual_preprocessing("torchvision:resnet18", {"in_chans": 1})
        assert (grey.input_size, grey.mean, grey.std, grey.resize) == ((1, 224, 224), (0.449,), (0.226,), 256)
        colour = usual_preprocessing("digitsnet", {"in_channels": 3})
        assert (colour.input_size, colour.mean) == ((3, 16, 16), IMAGENET.mean)
        assert usual_preprocessing("resnet20", {"image_size": (12, 20)}).input_size == (3, 12, 20)
        assert usual_preprocessing("resnet20", {"image_size": None}).input_size == (3, 32, 32)

    def test_networks_of_this_package(self) -> None:
        assert usual_preprocessing("resnet20").input_size == (3, 32, 32)
        assert usual_preprocessing("digitsnet").mean == (0.449,)


class TestFolders:
    def test_the_networks_own_is_the_default(self, tmp_path: Path) -> None:
        config = DataConfig(batch_size=4, workers=0)
        data = load_dataset("folder", pictures(tmp_path), config, preprocessing=SEEN)
        assert data.preprocessing == SEEN
        image, _ = next(data.val.batches())
        assert image.shape[1:] == (3, 12, 12)

    def test_the_resize_follows_the_image(self, tmp_path: Path) -> None:
        config = DataConfig(batch_size=4, workers=0, image_size=64)
        assert load_dataset("folder", pictures(tmp_path), config).preprocessing.resize == 73

    def test_one_number_for_grey(self, tmp_path: Path) -> None:
        config = DataConfig(batch_size=4, workers=0, image_size=8, mean=(0.5,), std=(0.5,), resize_size=0)
        data = load_dataset("folder", pictures(tmp_path), config)
        assert next(data.train.batches(0))[0].shape == (4, 1, 8, 8)

    def test_mean_and_std_must_fit(self, tmp_path: Path) -> None:
        config = DataConfig(batch_size=4, workers=0, mean=(0.5, 0.5), std=(1.0, 1.0))
        with pytest.raises(ConfigError, match="mean and std need 3 numbers each, or 1 for grey images"):
            load_dataset("folder", pictures(tmp_path), config)

    def test_other_sets_keep_their_statistics(self) -> None:
        assert load_dataset("digits", preprocessing=SEEN).mean == (0.3054,)

    def test_files_are_read_as_the_evaluation_reads_them(self, tmp_path: Path) -> None:
        root = pictures(tmp_path)
        data = load_dataset("folder", root, DataConfig(batch_size=4, workers=0), preprocessing=SEEN)
        images, _ = next(data.val.batches())
        files = sorted((root / "val").rglob("*.png"))
        assert torch.equal(read_images(files, SEEN), images)
        with pytest.raises(DataError, match=r"cannot read the image .*nothing\.png: FileNotFoundError"):
            read_images([tmp_path / "nothing.png"], SEEN)


class TestSaved:
    def test_it_comes_back(self, saved: Path) -> None:
        found = read(saved)
        assert found.preprocessing == SEEN
        assert found.input_shape == (3, 12, 12)

    def test_an_artifact_without_it_loads(self, saved: Path, tmp_path: Path) -> None:
        shutil.copytree(saved, tmp_path / "old")
        record = tmp_path / "old" / "pcshrink.json"
        content = json.loads(record.read_text())
        del content["preprocessing"], content["sha256"]
        body = b'",' + json.dumps(content, indent=1).encode()[1:] + b"\n"
        record.write_bytes(HEAD + sha256(body).encode() + body)
        assert read(tmp_path / "old").preprocessing is None
        for left, right in zip(pcs.load(tmp_path / "old").parameters(), pcs.load(saved).parameters(), strict=True):
            assert torch.equal(left, right)

    @pytest.mark.parametrize("change", [{"std": [0, 1, 1]}, {"mean": [1]}, {"resize": 3}, {"input_size": "big"}])
    def test_nonsense_is_refused(self, saved: Path, change: dict[str, Any], tmp_path: Path) -> None:
        shutil.copytree(saved, tmp_path / "odd")
        record = tmp_path / "odd" / "pcshrink.json"
        content = json.loads(record.read_text())
        del content["sha256"]
        content["preprocessing"] |= change
        body = b'",' + json.dumps(content, indent=1).encode()[1:] + b"\n"
        record.write_bytes(HEAD + sha256(body).encode() + body)
        with pytest.raises(CheckpointError, match=r"pcshrink\.json is damaged"):
            read(tmp_path / "odd")

    def test_evaluation_needs_nothing_but_the_artifact(self, saved: Path, tmp_path: Path) -> None:
        root = pictures(tmp_path / "images")
        shutil.copytree(saved, tmp_path / "copy")
        score = evaluate_saved(tmp_path / "copy", "folder", root)
        files = sorted((root / "val").rglob("*.png"))
        with torch.no_grad():
            chosen = pcs.load(saved)(read_images(files, SEEN)).argmax(1)
        wrong = (chosen != torch.arange(3).repeat_interleave(4)).float().mean()
        assert score["error"] == pytest.approx(100 * float(wrong))
        assert "note" not in score

    def test_a_plain_folder_may_hold_training_images(self, saved: Path, tmp_path: Path) -> None:
        root = pictures(tmp_path / "images")
        (root / "val").rename(tmp_path / "mine")
        assert (
            "mine has no val part, so all of its images count"
            in evaluate_saved(saved, "folder", tmp_path / "mine")["note"]
        )
        (tmp_path / "mine").rename(tmp_path / "test")
        assert "note" not in evaluate_saved(saved, "folder", tmp_path / "test")

    def test_folders_are_matched_by_name(self, saved: Path, tmp_path: Path) -> None:
        root = pictures(tmp_path / "images")
        whole = evaluate_saved(saved, "folder", root)
        shutil.rmtree(root / "train")  # evaluation alone needs none
        shutil.rmtree(root / "val" / "cat")
        part = evaluate_saved(saved, "folder", root)
        assert part == evaluate_saved(saved, "folder", root / "val")
        assert (whole["images"], part["images"]) == (12, 8)
        with torch.no_grad():
            chosen = pcs.load(saved)(read_images(sorted((root / "val").rglob("*.png")), SEEN)).argmax(1)
        assert part["error"] == pytest.approx(100 * float((chosen != torch.tensor([1] * 4 + [2] * 4)).float().mean()))
        assert part["accuracy"] == pytest.approx(100 - part["error"])

    def test_other_names_need_a_file(self, saved: Path, tmp_path: Path) -> None:
        root = pictures(tmp_path / "images", ("a", "b", "c"))
        with pytest.raises(DataError, match=r"val/a is none of the 3 classes of the network \(cat, dog, eel\)"):
            evaluate_saved(saved, "folder", root)
        order = tmp_path / "classes.json"
        order.write_text('{"0": ["c", "cat"], "1": ["a", "dog"], "2": ["b", "eel"]}')
        labels = torch.tensor([1, 2, 0]).repeat_interleave(4)
        with torch.no_grad():
            chosen = pcs.load(saved)(read_images(sorted((root / "val").rglob("*.png")), SEEN)).argmax(1)
        score = evaluate_saved(saved, "folder", root, classes=order)
        assert score["error"] == pytest.approx(100 * float((chosen != labels).float().mean()))
        order.write_text("a\nb\nc\nd\n")
        with pytest.raises(DataError, match="the network has 3 outputs, 'folder' has 4 classes"):
            evaluate_saved(saved, "folder", root, classes=order)

    def test_another_data_set_is_an_error_and_no_figure(self, saved: Path) -> None:
        with pytest.raises(DataError, match="saved for images of 3 x 12 x 12, not for 'digits': mean needs 1 numbers"):
            evaluate_saved(saved, "digits")

    @pytest.mark.export
    @pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
    def test_onnx_files_carry_it(self, saved: Path, exporter: str, tmp_path: Path) -> None:
        target = tmp_path / "m.onnx"
        example = torch.randn(2, *SEEN.input_size)
        export_onnx(pcs.load(saved), example, target, preprocessing=SEEN, exporters=(exporter,))
        assert read_preprocessing(target) == SEEN
        session = onnx_session(target)
        assert [entry.name for entry in session.get_inputs()] == ["input"]
        assert [entry.name for entry in session.get_outputs()] == ["output"]


@pytest.mark.train
def test_a_copied_artifact_repeats_the_error_of_its_run(tmp_path: Path) -> None:
    root = pictures(tmp_path / "images", count=12)
    recipe = check_recipe({
        "model": {"name": "resnet20", "args": {"image_size": 16}},
        "data": {"name": "folder", "root": str(root), "batch_size": 12, "workers": 0},
        "epochs": {"dense": 1}, "output": {"latency": False}, "train": {"threads": 1},
    })  # fmt: skip
    result = train(recipe, tmp_path / "run", quiet=True)
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "elsewhere")
    assert read(tmp_path / "elsewhere").preprocessing == Preprocessing(
        input_size=(3, 16, 16), mean=IMAGENET.mean, std=IMAGENET.std, resize=18, classes=("cat", "dog", "eel")
    )
    again = evaluate_saved(tmp_path / "elsewhere", "folder", root)
    assert (again["error"], again["loss"]) == (result.compact["error"], pytest.approx(result.compact["loss"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_size": (3, 0, 4)}, "input_size must be channels, height and width"),
        ({"mean": (0.0, float("nan"), 1.0)}, "mean must be 3 numbers"),
        ({"std": (1.0, 0.0, 1.0)}, "std must be positive"),
        ({"resize": 8}, "resize must be 0 or at least the input's 12"),
        ({"interpolation": "smooth"}, "interpolation must be one of nearest"),
    ],
)
def test_impossible_values(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Preprocessing.from_dict(SEEN.to_dict() | change)
