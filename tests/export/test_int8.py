"""8-bit files: calibrated on images, compared, timed; a warning where they do not agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pcshrink as pcs
from pcshrink.cli.main import app
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import DataError
from pcshrink.export import export_onnx
from pcshrink.export.int8 import quantise_onnx
from pcshrink.models import build
from testing.hurry import short_timings

pytest.importorskip("onnxruntime")
pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")
pytestmark = [pytest.mark.export, pytest.mark.filterwarnings("ignore")]

SEEN = Preprocessing(input_size=(3, 16, 16), mean=(0.5,) * 3, std=(0.25,) * 3, resize=18)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return build("resnet20").eval()


@pytest.fixture(scope="module")
def float_file(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("float") / "model.onnx"
    export_onnx(network, torch.randn(2, 3, 16, 16), path, batch=2)
    return path


def batches(seed, count=8):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, 16, 16, generator=generator) for _ in range(count)]


def test_smaller_and_mostly_the_same(float_file, tmp_path):
    report = quantise_onnx(float_file, tmp_path / "int8.onnx", batches(0), batches(1))
    assert report.images == 16
    assert report.agreement > 0.7
    assert report.bytes < 0.6 * report.float_bytes
    assert "held-out images" in str(report)


def test_a_warning_with_the_figure(float_file, tmp_path):
    report = quantise_onnx(float_file, tmp_path / "int8.onnx", batches(0), batches(1))
    assert not replace(report, agreement=0.98).warning
    assert "97.0%" in replace(report, agreement=0.97).warning


@pytest.mark.parametrize(("calibration", "held_out"), [([], batches(1, 1)), (batches(0, 1), [])])
def test_no_images(float_file, tmp_path, calibration, held_out):
    with pytest.raises(DataError, match="there are no images"):
        quantise_onnx(float_file, tmp_path / "int8.onnx", calibration, held_out)
    assert not list(tmp_path.iterdir())


def test_command(network, tmp_path, monkeypatch):
    short_timings(monkeypatch.setattr)
    pcs.save(tmp_path / "model", network, None, "pcshrink:resnet20", input_shape=(3, 16, 16), preprocessing=SEEN)
    (tmp_path / "images").mkdir()
    for number in range(10):
        noise = np.random.default_rng(number).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "images" / f"{number}.png")
    words = ["export", str(tmp_path / "model"), "--int8"]
    said = CliRunner().invoke(app, [*words, "--images", str(tmp_path / "none")])
    assert isinstance(said.exception, DataError)
    assert not list(tmp_path.rglob("*.onnx"))  # found out before anything was written
    said = CliRunner().invoke(app, [*words, "--images", str(tmp_path / "images")])
    assert said.exit_code == 0, said.output
    assert (tmp_path / "model" / "model.int8.onnx").is_file()
    assert "of 2 held-out images" in said.output
    assert "--images DIR" in str(CliRunner().invoke(app, words).exception)


def test_nothing_is_written_without_images(network, tmp_path):
    """The float file is not left behind where the 8-bit one cannot be made."""
    pcs.save(tmp_path / "model", network, None, "pcshrink:resnet20", input_shape=(3, 16, 16), preprocessing=SEEN)
    words = ["export", str(tmp_path / "model"), "--int8", "--images", str(tmp_path / "nowhere")]
    said = CliRunner().invoke(app, words)
    assert "does not exist" in str(said.exception)
    assert not list((tmp_path / "model").glob("*.onnx"))
