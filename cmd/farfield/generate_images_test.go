package main

import (
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// drawer returns the folder of a model of images of 4×4 that has first weights.
func drawer(t *testing.T, mechanism string) string {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 257, Outputs: 6, Loss: model.Logistics, Layers: 1, Heads: 2, Width: 8, Context: 16,
		Positions: model.Learned, Mechanism: mechanism, Bias: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := checkpoint.SaveModel(dir, m, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGenerateImages(t *testing.T) {
	t.Parallel()
	dir, out := drawer(t, "linear"), filepath.Join(t.TempDir(), "grid.png")
	text := works(t, "generate", "--model", dir, "--images", "5", "--out", out)
	for _, want := range []string{"5 images of 4×4", "images/s by state, 5 at a time"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	grid := readPNG(t, out)
	if b := grid.Bounds(); b.Dx() != 3*6+2 || b.Dy() != 2*6+2 {
		t.Errorf("the grid is %v", b)
	}
	first, _ := os.ReadFile(out)
	var r generate.DrawStats
	if err := json.Unmarshal([]byte(works(t, "generate", "--model", dir, "--images", "5", "--out", out, "--way", "recompute", "--batch", "2", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Mode != generate.ModeRecompute || r.Batch != 2 || r.Images != 5 || r.ImagesPerSecond <= 0 {
		t.Errorf("the report is %+v", r)
	}
	if again, _ := os.ReadFile(out); string(again) != string(first) {
		t.Error("recomputed images differ")
	}
	works(t, "generate", "--model", dir, "--images", "5", "--out", out, "--seed", "2")
	if again, _ := os.ReadFile(out); string(again) == string(first) {
		t.Error("the seed changes nothing")
	}
}

func TestGenerateCompletes(t *testing.T) {
	t.Parallel()
	dir, out := drawer(t, "softmax"), filepath.Join(t.TempDir(), "grid.png")
	given := image.NewGray(image.Rect(0, 0, 4, 4))
	for i := range given.Pix {
		given.Pix[i] = byte(15 * i)
	}
	path := filepath.Join(t.TempDir(), "given.png")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, given); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if text := works(t, "generate", "--model", dir, "--images", "2", "--out", out, "--complete", path); !strings.Contains(text, "by cache") {
		t.Errorf("printed %s", text)
	}
	grid := readPNG(t, out)
	// The image itself, and two images with the same upper half.
	for p := range 16 {
		x, y, want := p%4, p/4, byte(15*p)
		for i, at := range []image.Point{{2, 2}, {8, 2}, {2, 8}} {
			if r, _, _, _ := grid.At(at.X+x, at.Y+y).RGBA(); (i == 0 || y < 2) && byte(r>>8) != want {
				t.Errorf("image %d, pixel %d is %d, want %d", i, p, r>>8, want)
			}
		}
	}
	if grid.At(8, 8) != (color.RGBA{128, 128, 128, 255}) {
		t.Errorf("the place without an image is %v", grid.At(8, 8))
	}
}

func TestBadImages(t *testing.T) {
	t.Parallel()
	dir, out := drawer(t, "linear"), filepath.Join(t.TempDir(), "grid.png")
	all := []string{"generate", "--model", dir, "--images", "1", "--out", out}
	for want, args := range map[string][]string{
		"--images: -1 is negative":                   {"generate", "--model", dir, "--images=-1"},
		"--out: a PNG file is needed":                {"generate", "--model", dir, "--images", "1"},
		"--out: is of images":                        {"generate", "--model", dir, "--out", out},
		"--way: is of images":                        {"generate", "--model", dir, "--way", "state"},
		"--top-k: is of texts":                       append(all, "--top-k", "3"),
		"--tokens: is of texts":                      append(all, "--tokens", "250"),
		"--ids: is of texts":                         append(all, "--ids", "in.npz"),
		"way: cache, but linear has state":           append(all, "--way", "cache"),
		"batch: -1 is negative":                      append(all, "--batch=-1"),
		"--complete: stat nothing.png":               append(all, "--complete", "nothing.png"),
		"config.json":                                append(all, "--complete", "3"),
		"is what is read, and would be lost":         {"generate", "--model", dir, "--images", "1", "--out", filepath.Join(dir, "config.json")},
		"has no vocabulary: it did not learn a text": {"generate", "--model", dir},
	} {
		refuses(t, want, args...)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a picture was written")
	}
}
