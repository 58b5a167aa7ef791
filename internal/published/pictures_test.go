package published

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/dataset"
)

// pictureFolders are the folders with pictures and what Pillow and transformers make of them.
func pictureFolders() []string {
	list := []string{filepath.Join("testdata", "pictures")}
	if dir := os.Getenv("FARFIELD_PICTURES"); dir != "" {
		list = append(list, filepath.Join(dir, "pictures"))
	}
	return list
}

// readPhoto reads a picture.
func readPhoto(t *testing.T, path string) *dataset.Picture {
	t.Helper()
	p, err := dataset.ReadFile(path, dataset.ReadPhoto)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestResizedPicturesHaveThePixelsOfPillow compares all ways to resize with the pixels that
// lab/peers/pillow_pictures.py wrote.
func TestResizedPicturesHaveThePixelsOfPillow(t *testing.T) {
	t.Parallel()
	for _, dir := range pictureFolders() {
		list, err := filepath.Glob(filepath.Join(dir, "resized", "*.png"))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s has no pictures: %v", dir, err)
		}
		for _, path := range list {
			var source, way, height, width int
			if _, err := fmt.Sscanf(filepath.Base(path), "%d_%d_%d_%d.png", &source, &way, &height, &width); err != nil {
				t.Fatal(path, err)
			}
			want := readPhoto(t, path)
			got := dataset.Resampling(way).Resize(readPhoto(t, filepath.Join(dir, fmt.Sprintf("%03d.png", source))), height, width)
			if want.Height != height || want.Width != width || got.Height != height || got.Width != width {
				t.Fatalf("%s: %d×%d, want %d×%d", path, got.Width, got.Height, want.Width, want.Height)
			}
			if !bytes.Equal(got.Pixels, want.Pixels) {
				t.Errorf("%s: pixels differ, of %s", path, describeSize(readPhoto(t, filepath.Join(dir, fmt.Sprintf("%03d.png", source)))))
			}
		}
		t.Logf("%s: compared %d pictures", dir, len(list))
	}
}

// TestPixelValuesAgreeWithPillowAndTransformers compares prepared pictures with the processors of
// transformers that resize by Pillow. A level becomes a number by three operations of float32
// on numbers of at most the largest, each rounded by half a unit of 2⁻²³ of it.
func TestPixelValuesAgreeWithPillowAndTransformers(t *testing.T) {
	t.Parallel()
	for _, dir := range pictureFolders() {
		list, err := filepath.Glob(filepath.Join(dir, "processed", "*"))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s has no pictures: %v", dir, err)
		}
		worst := 0.
		for _, folder := range list {
			source, _, _ := strings.Cut(filepath.Base(folder), "_")
			v := &vision{channels: 3, size: 16, patch: 4}
			m := &Model{inputReader: inputReader{family: "vit", plan: &plan{vision: v}}, pictures: newPictureReader(folder, v)}
			got, err := m.ReadPixels(filepath.Join(dir, source+".png"))
			if err != nil {
				t.Fatalf("%s: %v", folder, err)
			}
			f, err := os.Open(filepath.Join(folder, "pixel_values.npy"))
			if err != nil {
				t.Fatal(err)
			}
			a, err := array.ReadNPY(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			want, err := a.Float32()
			if err != nil || len(want) != len(got) {
				t.Fatalf("%s: %d numbers, want %v, %v", folder, len(got), a.Shape, err)
			}
			largest, most := 0., 0.
			for i, x := range got {
				largest = max(largest, math.Abs(float64(want[i])))
				most = max(most, math.Abs(float64(x)-float64(want[i])))
			}
			worst = max(worst, most/largest)
			if most > 3*0x1p-24*largest {
				t.Errorf("%s: numbers differ by %g of %g", folder, most, largest)
			}
		}
		t.Logf("%s: compared %d pictures, largest difference %g", dir, len(list), worst)
	}
}

// TestProcessorIsRefusedByName: a field that changes pixels and is not known is named.
func TestProcessorIsRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{`{`, processorFile + ": "}, // encoding/json's words differ between releases of Go
		{`[]`, "a JSON object is needed"},
		{`{"image_processor_type":"CLIPImageProcessor"}`, `image_processor_type: is "CLIPImageProcessor", ViTImageProcessor or DeiTImageProcessor is supported`},
		{`{"size":{"shortest_edge":8}}`, "size.height: is missing"},
		{`{"size":{"height":8,"width":8,"longest_edge":9}}`, "size.longest_edge: is 9, but the field is unknown"},
		{`{"size":5000}`, "size: is 5000×5000, sides of at most 4096"},
		{`{"size":9}`, "size: is 9×9, the model reads 8×8"},
		{`{"size":8,"resample":6}`, "resample: is 6, needs to be from 0 to 5"},
		{`{"size":8,"resample":"bicubic"}`, `resample: is "bicubic", an integer is needed`},
		{`{"size":8,"image_mean":[1,2]}`, "image_mean: has 2 numbers, 3 are needed"},
		{`{"size":8,"image_mean":[1,2,1e99]}`, "image_mean: has 1e+99"},
		{`{"size":8,"image_std":[1,2,0]}`, "image_std: has a 0"},
		{`{"size":8,"do_center_crop":true}`, "do_center_crop: is true, false is supported"},
		{`{"size":8,"do_pad":true}`, "do_pad: is true, false is supported"},
		{`{"size":8,"crop_pct":0.9}`, "crop_pct: is 0.9, but the field is unknown here and may change the function"},
		{`{"image_processor_type":"DeiTImageProcessor","crop_size":9}`, "crop_size: is 9×9, the model reads 8×8"},
		{`{"image_processor_type":"DeiTImageProcessor","size":7,"crop_size":8}`, "crop_size: is 8×8, size 7×7"},
		{`{"size":8,"offset":null,"processor_class":"x","crop_size":3,"do_center_crop":false}`, ""},
		{`{"do_resize":false}`, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, processorFile), []byte(c[0]), 0o644); err != nil {
			t.Fatal(err)
		}
		err := newPictureReader(dir, &vision{channels: 3, size: 8, patch: 4}).err
		if c[1] == "" && err != nil || c[1] != "" && (err == nil || !strings.Contains(err.Error(), c[1]) || !strings.Contains(err.Error(), processorFile)) {
			t.Errorf("%s: %v, want %s", c[0], err, c[1])
		}
	}
	if err := newPictureReader(t.TempDir(), &vision{channels: 1, size: 8, patch: 4}).err; err == nil || !strings.Contains(err.Error(), "num_channels is 1") {
		t.Errorf("grey: %v", err)
	}
}

// TestPicturesFollowViTByDefault: without preprocessor_config.json the rules of ViT hold, at
// the model's size. A model of texts refuses pictures.
func TestPicturesFollowViTByDefault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["vit"])
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := &dataset.Picture{Height: 1, Width: 2, Pixels: bytes.Repeat([]byte{255, 0, 51}, 2)}
	got, err := m.Pixels(p)
	if err != nil || len(got) != 3*8*8 || got[0] != 1 || got[64] != -1 || math.Abs(float64(got[128])+0.6) > 1e-6 {
		t.Errorf("%v, %v", got, err)
	}
	patches, err := m.Patches(got)
	if err != nil || len(patches) != len(got) || patches[16] != -1 {
		t.Errorf("%v, %v", patches, err)
	}
	if err := m.CheckPixels([]int{2, 3, 8, 8}); err != nil {
		t.Error(err)
	}
	for _, shape := range [][]int{{1, 8, 8, 3}, {1, 1, 24, 8}, {1, 12, 4, 4}, {0, 3, 8, 8}, {3, 8, 8}} {
		if err := m.CheckPixels(shape); err == nil || !strings.Contains(err.Error(), "needs [B,3,8,8]") {
			t.Errorf("pixel_values %v: %v", shape, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, processorFile), []byte(`{"do_resize":false}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if m, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Pixels(p); err == nil || !strings.Contains(err.Error(), "2 wide and 1 high without do_resize, the model reads 8×8") {
		t.Errorf("%v", err)
	}
	for _, p := range []*dataset.Picture{nil, {}, {Height: 2, Width: 2, Pixels: make([]byte, 11)}, {Height: -1, Width: -1, Pixels: make([]byte, 3)}} {
		if _, err := m.Pixels(p); err == nil || !strings.HasPrefix(err.Error(), "picture: i") {
			t.Errorf("%v", err)
		}
	}
	if _, err := m.Pixels(&dataset.Picture{Height: maxPictureSide + 1, Width: 1}); err == nil || !strings.Contains(err.Error(), "sides of at most 65536") {
		t.Errorf("%v", err)
	}
	if m, err = Open(filepath.Join("..", "..", "pretrained", "testdata", "tiny")); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckPictures(); err == nil || !strings.Contains(err.Error(), "the bert reads texts, not pictures") {
		t.Errorf("%v", err)
	}
}

// describeSize returns the size of a picture.
func describeSize(p *dataset.Picture) string {
	return fmt.Sprintf("%d×%d", p.Width, p.Height)
}
