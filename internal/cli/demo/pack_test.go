package demo

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

var write = flag.String("write", "", "folder of a run, whose model and unseen text become those of the program")

// TestWriteCarried writes the carried files from a run, for make demo-model.
func TestWriteCarried(t *testing.T) {
	t.Parallel()
	if *write == "" {
		t.Skip("needs the folder of a run: -write DIR")
	}
	m, _, err := inference.LoadRun(*write)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(dir, model.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var weights []*array.Array
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := a.Float32()
		if err != nil {
			t.Fatal(err)
		}
		bits := make([]uint16, len(data))
		for i, x := range data {
			bits[i] = nearestBF16(x)
		}
		if a, err = array.NewBF16(name, bits, a.Shape...); err != nil {
			t.Fatal(err)
		}
		weights = append(weights, a)
	}
	err = atomicfile.Write(filepath.Join("model", model.WeightsFile), func(w io.Writer) error {
		return safetensors.Write(w, weights, f.Metadata())
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, model.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteBytes(filepath.Join("model", model.ConfigFile), config); err != nil {
		t.Fatal(err)
	}
	c, err := train.RunConfig(*write)
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	text := src.(*task.Text).Corpus.Text
	err = atomicfile.Write(filepath.Join("model", "unseen.txt.gz"), func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err == nil {
			_, err = z.Write(text[len(text)-src.(*task.Text).Tokens(task.Valid).Len():])
		}
		if err == nil {
			err = z.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// nearestBF16 returns the upper half of the float32 that is nearest to x among those whose lower half is 0,
// the even one of two.
func nearestBF16(x float32) uint16 {
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func TestNearestBF16(t *testing.T) {
	t.Parallel()
	for x, want := range map[uint32]uint16{0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0xbf807fff: 0xbf80} {
		if got := nearestBF16(math.Float32frombits(x)); got != want {
			t.Errorf("%#x is rounded to %#x, want %#x", x, got, want)
		}
	}
}

// The text that the program carries is whole.
func TestUnseenText(t *testing.T) {
	t.Parallel()
	text, err := unseenText()
	if err != nil || len(text) < standard.calibration+standard.most+1 || !bytes.Contains([]byte(text), []byte("PETRUCHIO")) {
		t.Errorf("%d bytes, %v; needs %d", len(text), err, standard.calibration+standard.most+1)
	}
}
