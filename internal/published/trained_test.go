package published

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// openTrained opens a trained model of the shared folder and its reference, or skips.
func openTrained(t *testing.T, name, file string) (*Model, reference) {
	t.Helper()
	dir := filepath.Join("../../../shared/models", name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("0 texts compared: %v", err)
	}
	m, err := Open(filepath.Join(dir, "hf"))
	if err != nil {
		t.Fatal(err)
	}
	return m, openReference(t, filepath.Join(dir, file))
}

func TestStories260KGivesItsReference(t *testing.T) {
	t.Parallel()
	m, r := openTrained(t, "stories260K", "ref_f64.npz")
	for i := range 5 {
		ids, _ := r.ids(fmt.Sprintf("text%d_ids", i))
		in := &Input{B: 1, N: len(ids), IDs: ids, Hidden: true}
		out, err := m.Forward(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		hidden, err := out.Hidden.Float32()
		if err != nil {
			t.Fatal(err)
		}
		want := r.floats(fmt.Sprintf("text%d_hidden", i))
		last := len(want) / 6 * 5
		compareNumbers(t, "hidden", hidden[:last], want[:last], 2e-5)
		compareNumbers(t, "final", hidden[last:], r.floats(fmt.Sprintf("text%d_final", i)), 2e-5)
		compare(t, "logits", out.Logits, r.floats(fmt.Sprintf("text%d_logits", i)), 2e-5)
	}
	t.Log("5 texts compared")
}

func TestBARTGivesItsReference(t *testing.T) {
	t.Parallel()
	m, r := openTrained(t, "bart-g2p-us", "ref_hf_f64.npz")
	for i := range 5 {
		ids, _ := r.ids(fmt.Sprintf("ids%d", i))
		target, _ := r.ids(fmt.Sprintf("dec%d", i))
		in := &Input{B: 1, N: len(ids), IDs: ids, DecoderIDs: target, DecoderN: len(target), Hidden: true}
		out, err := m.Forward(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		encoder := r.floats(fmt.Sprintf("enc%d", i))
		compare(t, "encoder", out.EncoderLast, encoder[len(encoder)/2:], 2e-5)
		compare(t, "decoder_hidden", out.Hidden, r.floats(fmt.Sprintf("dech%d", i)), 2e-5)
		compare(t, "logits", out.Logits, r.floats(fmt.Sprintf("logits%d", i)), 2e-5)
		logits, err := out.Logits.Float32()
		if err != nil {
			t.Fatal(err)
		}
		generated, _ := r.ids(fmt.Sprintf("gen%d", i)) // begins with the start
		for j := range target {
			row := logits[j*63:][:63]
			if best := slices.Index(row, slices.Max(row)); best != int(generated[j+1]) {
				t.Errorf("word %d: token %d is %d, want %d", i, j, best, generated[j+1])
			}
		}
	}
	t.Log("5 words compared")
}

func TestInterpolatedPositionsKeepShortTexts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bert", "roberta", "mpnet"} {
		m := openTiny(t, name)
		in := &Input{B: 1, N: 40}
		for i := range in.N {
			in.IDs = append(in.IDs, int32(2+i%17))
		}
		if _, err := m.Forward(context.Background(), in); err == nil {
			t.Errorf("%s: 40 tokens are read by a table of 16 positions", name)
		}
		long, err := OpenWith(m.dir, Options{Positions: Interpolate})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(outputs(t, long), outputs(t, m)) {
			t.Errorf("%s: short texts have other outputs", name)
		}
		grads, err := long.Gradients(context.Background(), in, slices.Repeat([]float32{1, -0.5}, len(outputsOf(t, long, in))/2))
		if err != nil {
			t.Fatal(err)
		}
		if len(grads) != len(m.Names()) {
			t.Errorf("%s: %d gradients, want %d", name, len(grads), len(m.Names()))
		}
		to := t.TempDir()
		if err := long.Save(to); err != nil {
			t.Fatal(err)
		}
		again, err := Open(to)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(outputs(t, again), outputs(t, m)) {
			t.Errorf("%s: the table was saved with stretched rows", name)
		}
	}
}

// A step along the gradients changes stretched positions through their table alone.
func TestStretchedPositionsFollowTheirTable(t *testing.T) {
	t.Parallel()
	m, err := OpenWith(openTiny(t, "bert").dir, Options{Positions: Interpolate})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{B: 1, N: 40}
	for i := range in.N {
		in.IDs = append(in.IDs, int32(2+i%17))
	}
	before := outputsOf(t, m, in)
	if _, err := m.Gradients(context.Background(), in, slices.Repeat([]float32{1, -0.5}, len(before)/2)); err != nil {
		t.Fatal(err)
	}
	p, err := m.Model().Params().Get(positionName)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range p.Grad {
		p.Data[i] -= d
		if d != 0 && i >= m.stretched.rows*p.Shape[1] {
			t.Fatalf("element %d of a stretched copy has the gradient %v", i, d)
		}
	}
	to := t.TempDir()
	if err := m.Save(to); err != nil {
		t.Fatal(err)
	}
	again, err := OpenWith(to, Options{Positions: Interpolate})
	if err != nil {
		t.Fatal(err)
	}
	if got := outputsOf(t, m, in); slices.Equal(got, before) || !slices.Equal(got, outputsOf(t, again, in)) {
		t.Error("long texts read other positions than the table gives")
	}
}
