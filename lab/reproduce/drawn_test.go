package reproduce

import (
	"bytes"
	"encoding/binary"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/generate"
)

// writeDigits writes a training and a test set in the format of MNIST to a folder.
func writeDigits(t *testing.T, folder string, train, test int) {
	t.Helper()
	dir := filepath.Join(folder, "mnist")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte, shape ...uint32) {
		b := []byte{0, 0, 8, byte(len(shape))}
		for _, n := range shape {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(b, data...), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range map[string]int{"train": train, "t10k": test} {
		pixels, labels := make([]byte, n*784), make([]byte, n)
		for i := range pixels {
			pixels[i] = byte(i / 28 % 28 * 9) // rows of one grey
		}
		write(name+"-images-idx3-ubyte", pixels, uint32(n), 28, 28)
		write(name+"-labels-idx1-ubyte", labels, uint32(n))
	}
}

// TestDrawn trains for two updates and draws.
func TestDrawn(t *testing.T) {
	o := &Options{Out: t.TempDir(), Data: t.TempDir()}
	sizes := drawnSmall
	defer func() { drawnSmall = sizes }()
	drawnSmall.Layers, drawnSmall.Width = 1, 16
	d := mnistDrawn
	d.Steps[Quick], d.Sheet, d.EvalSamples, d.FinalSamples = 2, 3, 1, 2
	writeDigits(t, o.Data, 20, 4)
	row := linearTable1
	row.pieces, row.outcome = d.lessons().pieces, d.outcome
	out, err := row.Run(t.Context(), o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	table := out.Tables[0]
	if len(table.Rows) != 3+2+4 || len(out.Sections) != 3 {
		t.Fatalf("table %+v, %d drawings", table, len(out.Sections))
	}
	for i, want := range []string{"softmax", "linear", "fastmax 2", "lsh-1", "lsh-4", "equal chances (baseline)"} {
		if table.Rows[i][0] != want {
			t.Errorf("row %d is %v, %s was expected", i, table.Rows[i], want)
		}
	}
	if soft := table.Rows[0]; soft[1] != "0.621" || soft[3] != "7.56" || soft[6] != "0.45" || soft[4] == none || soft[5] == none || soft[7] == none {
		t.Errorf("row of softmax %v", soft)
	}
	if lin := table.Rows[1]; lin[5] == none || lin[7] != none {
		t.Errorf("row of linear attention %v", lin)
	}
	dir, err := out.Write(o)
	if err != nil {
		t.Fatal(err)
	}
	sheet, err := os.ReadFile(filepath.Join(dir, "drawn-fastmax-2.png"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(sheet))
	if err != nil {
		t.Fatal(err)
	}
	blank := make([]byte, d.Shape.Size())
	grid, err := generate.ComposeGrid(d.Shape, [][]byte{blank, blank, blank})
	if err != nil || img.Bounds() != grid.Bounds() {
		t.Errorf("the sheet has %v, %v", img.Bounds(), err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || strings.Count(string(page), "data:image/png") != 3 {
		t.Errorf("the page has %d pictures, %v", strings.Count(string(page), "data:image/png"), err)
	}
}

// TestWithoutData passes over what has no data, and fails where nothing is left.
func TestWithoutData(t *testing.T) {
	o := &Options{Out: t.TempDir(), Data: t.TempDir()}
	_, err := linearTable1.Run(t.Context(), o, Observer{})
	if err == nil || !strings.Contains(err.Error(), "mnist: it holds no") || !strings.Contains(err.Error(), "farfield data") {
		t.Errorf("error is %v", err)
	}
	both := *smallRow()
	both.pieces = func(o *Options) ([]Piece, error) {
		a, err := smallRow().pieces(o)
		if err != nil {
			return nil, err
		}
		b, err := linearTable1.pieces(o)
		return append(b, a...), err
	}
	var skipped []string
	out, err := both.Run(t.Context(), o, Observer{Skipped: func(piece string, _ error) { skipped = append(skipped, piece) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(skipped) != 4 || len(out.Missing) != 4 || len(out.Records) != 5 {
		t.Errorf("%v were passed over, %v are missing, %d are there", skipped, out.Missing, len(out.Records))
	}
}
