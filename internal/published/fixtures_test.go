package published

import (
	"context"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// sharedFolder is the folder of models with references.
const sharedFolder = "../../../shared/fixtures/hf"

// fixtureFolders lists the folders with references under root, or skips.
func fixtureFolders(t *testing.T, root string) []string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(root, "*", "ref.npz"))
	if len(found) == 0 {
		t.Skipf("0 folders compared: %s has none", root)
	}
	var dirs []string
	for _, path := range found {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

// reference is the arrays of ref.npz.
type reference struct {
	t *testing.T
	f *array.File
}

// openReference opens a file of arrays for the time of the test.
func openReference(t *testing.T, path string) reference {
	t.Helper()
	f, err := array.OpenNPZ(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return reference{t, f}
}

// has reports whether the file has an array of this name.
func (r reference) has(name string) bool { return slices.Contains(r.f.Names(), name) }

// array returns an array and ends the test where it is missing or damaged.
func (r reference) array(name string) *array.Array {
	r.t.Helper()
	a, err := r.f.ReadArray(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// floats returns an array of single or double numbers.
func (r reference) floats(name string) []float32 {
	r.t.Helper()
	a := r.array(name)
	if x, err := a.Float32(); err == nil {
		return x
	}
	x, err := a.Float64()
	if err != nil {
		r.t.Fatal(err)
	}
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(x[i])
	}
	return y
}

func (r reference) ids(name string) (ids []int32, shape []int) {
	r.t.Helper()
	a := r.array(name)
	x, err := a.Int64()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range x {
		ids = append(ids, int32(v))
	}
	return ids, a.Shape
}

// input returns the input of a reference.
func (r reference) input() *Input {
	in := &Input{Hidden: true}
	if r.has("pixel_values") {
		in.B, in.Pixels = r.array("pixel_values").Shape[0], r.floats("pixel_values")
		return in
	}
	ids, shape := r.ids("input_ids")
	in.B, in.N, in.IDs = shape[0], shape[1], ids
	if r.has("attention_mask") {
		mask, _ := r.ids("attention_mask")
		for _, x := range mask {
			in.Mask = append(in.Mask, x != 0)
		}
	}
	if r.has("token_type_ids") {
		in.Types, _ = r.ids("token_type_ids")
	}
	if r.has("decoder_input_ids") {
		ids, shape := r.ids("decoder_input_ids")
		in.DecoderIDs, in.DecoderN = ids, shape[1]
	}
	return in
}

// compareOutputs holds the outputs for the input of the reference to its arrays. Each array must be
// an output, an input or the gradient of a weight.
func (r reference) compareOutputs(m *Model, in *Input) {
	t := r.t
	t.Helper()
	out, err := m.Forward(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, name := range r.f.Names() {
		var x *array.Array
		switch name {
		case "hidden", "decoder_hidden":
			x = out.Hidden
		case "encoder_last_hidden_state":
			x = out.EncoderLast
		case "last_hidden_state":
			x = out.LastHidden
		case "logits":
			x = out.Logits
		case "pooler_output":
			x = out.Pooled
		case "input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "pixel_values", "do", "prompt", "greedy":
			continue
		default:
			if !strings.HasPrefix(name, "d_") {
				t.Errorf("%s: is not compared", name)
			}
			continue
		}
		compare(t, name, x, r.floats(name), 2e-5)
		compared++
	}
	if compared == 0 {
		t.Error("0 arrays compared")
	}
}

// compare holds x to want within share of want's largest number.
func compare(t *testing.T, name string, x *array.Array, want []float32, share float64) {
	t.Helper()
	if x == nil {
		t.Errorf("%s: is missing", name)
		return
	}
	got, err := x.Float32()
	if err != nil || len(got) != len(want) {
		t.Errorf("%s: has %d elements, want %d (%v)", name, len(got), len(want), err)
		return
	}
	compareNumbers(t, name, got, want, share)
}

func compareNumbers(t *testing.T, name string, got, want []float32, share float64) {
	t.Helper()
	most, worst := largest(want), 0.0
	for i := range want {
		worst = max(worst, math.Abs(float64(got[i])-float64(want[i])))
	}
	if !(worst <= share*most) {
		t.Errorf("%s: differs by %.3g, %.3g of the largest number %.3g", name, worst, worst/most, most)
	}
}

// largest returns the largest magnitude.
func largest(x []float32) (most float64) {
	for _, v := range x {
		most = max(most, math.Abs(float64(v)))
	}
	return most
}

func TestFoldersGiveReferenceOutputsAndGradients(t *testing.T) {
	t.Parallel()
	root := sharedFolder
	if other := os.Getenv("FARFIELD_FOLDERS"); other != "" {
		root = other
	}
	dirs := fixtureFolders(t, root)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := openReference(t, filepath.Join(dir, "ref.npz"))
			in := r.input()
			r.compareOutputs(m, in)
			compareGradients(t, m, in, r.floats("do"), storedGradients(t, dir))
			compareGreedy(t, m, r)
		})
	}
	t.Logf("%d folders compared", len(dirs))
}

// referenceConfigs are small configurations of all families, and wider ones, whose rotations have several
// frequencies.
func referenceConfigs() map[string]string {
	const (
		llama = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":32,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":20,`
		wide  = `"hidden_size":32,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":20,"tie_word_embeddings":false,`
	)
	all := maps.Clone(tinyConfigs)
	all["modernbert"] = strings.Replace(all["modernbert"], "{", `{"pad_token_id":0,`, 1) // transformers needs an id of the vocabulary
	all["llama3_rope"] = llama + `"max_position_embeddings":256,"rope_theta":10000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}}`
	all["llama_linear"] = llama + `"max_position_embeddings":256,"rope_parameters":{"rope_type":"linear","rope_theta":10000.0,"factor":4.0}}`
	all["llama_yarn"] = llama + `"max_position_embeddings":256,"rope_parameters":{"rope_type":"yarn","rope_theta":10000.0,"factor":4.0,"original_max_position_embeddings":64}}`
	all["llama_dynamic"] = llama + `"rope_theta":10000.0,"max_position_embeddings":4,"rope_scaling":{"type":"dynamic","factor":2.0}}`
	all["phi3_long"] = strings.Replace(all["phi3"], `"original_max_position_embeddings":8`, `"original_max_position_embeddings":3`, 1)
	all["phi3_partial"] = strings.Replace(strings.Replace(all["phi3"], `"sliding_window":5,"rope_scaling":{"type":"longrope","short_factor":[1,1.25,1.5],"long_factor":[1.5,3,7]}`, `"partial_rotary_factor":0.75`, 1), "Phi3ForCausalLM", "Phi3ForSequenceClassification", 1)
	all["gemma2_classes"] = strings.Replace(all["gemma2"], "Gemma2ForCausalLM", "Gemma2ForSequenceClassification", 1)
	all["gemma3_body"] = strings.Replace(strings.Replace(all["gemma3_text"], "Gemma3ForCausalLM", "Gemma3TextModel", 1), `"query_pre_attn_scalar":6`, `"query_pre_attn_scalar":9,"attention_bias":true`, 1)
	all["gpt_neox_odd"] = strings.Replace(all["gpt_neox"], `"rotary_pct":0.25`, `"rotary_pct":0.625`, 1)
	all["gpt_neox_wide"] = `{"architectures":["GPTNeoXForCausalLM"],"model_type":"gpt_neox",` + wide + `"rotary_pct":0.5}`
	all["phi_wide"] = `{"architectures":["PhiForCausalLM"],"model_type":"phi",` + wide + `"partial_rotary_factor":0.5}`
	return all
}

func TestTinyFoldersGiveReferenceOutputsAndGradients(t *testing.T) {
	t.Parallel()
	for name, config := range referenceConfigs() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFolder(t, dir, config)
			m, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := openReference(t, filepath.Join("testdata", "references", name+".npz"))
			in := r.input()
			r.compareOutputs(m, in)
			want := map[string][]float32{}
			for _, stored := range r.f.Names() {
				if weight, is := strings.CutPrefix(stored, "d_"); is {
					want[weight] = r.floats(stored)
				}
			}
			compareGradients(t, m, in, r.floats("do"), want)
			compareGreedy(t, m, r)
		})
	}
}

// TestWriteReferenceFolders writes the folders and inputs that
// lab/peers/transformers_references.py reads.
func TestWriteReferenceFolders(t *testing.T) {
	t.Parallel()
	root := os.Getenv("FARFIELD_REFERENCES")
	if root == "" {
		t.Skip("0 folders written: needs FARFIELD_REFERENCES")
	}
	for name, config := range referenceConfigs() {
		dir := filepath.Join(root, name)
		writeFolder(t, dir, config)
		m, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		in := tinyInput(m)
		var arrays []*array.Array
		if v := m.plan.vision; v != nil {
			arrays = append(arrays, newArray(t, "pixel_values", in.Pixels, in.B, v.channels, v.size, v.size))
		} else {
			mask := make([]int32, len(in.Mask))
			for i, is := range in.Mask {
				if is {
					mask[i] = 1
				}
			}
			arrays = append(arrays, newArray(t, "input_ids", in.IDs, in.B, in.N), newArray(t, "attention_mask", mask, in.B, in.N))
		}
		if slices.Contains(referencePrompts, m.family) && m.plan.head == nextHead {
			arrays = append(arrays, newArray(t, "prompt", []int32{2, 5, 7}, 1, 3))
		}
		if in.DecoderIDs != nil {
			arrays = append(arrays, newArray(t, "decoder_input_ids", in.DecoderIDs, in.B, in.DecoderN))
		}
		err = atomicfile.Write(filepath.Join(dir, "in.npz"), func(w io.Writer) error { return array.WriteNPZ(w, arrays) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// referencePrompts are families whose references have a continuation, which sessions give.
var referencePrompts = []string{"phi3", "gemma2", "gemma3_text"}

func newArray[T array.Element](t *testing.T, name string, data []T, shape ...int) *array.Array {
	t.Helper()
	a, err := array.New(name, data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// storedGradients returns the arrays of grads.safetensors.
func storedGradients(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "grads.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]float32{}
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = a.Float32(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// compareGradients holds gradients to want, and takes the gradients that it compared from want.
func compareGradients(t *testing.T, m *Model, in *Input, do []float32, want map[string][]float32) {
	t.Helper()
	if len(want) == 0 {
		t.Error("0 gradients compared")
	}
	grads, err := m.Gradients(context.Background(), in, do)
	if err != nil {
		t.Fatal(err)
	}
	all := 0.0
	for _, x := range want {
		all = max(all, largest(x))
	}
	for _, g := range grads {
		w, has := want[g.Name]
		x, err := g.Float32()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !has && largest(x) != 0:
			t.Errorf("d_%s: is not 0, and the reference has none", g.Name)
		case has && largest(w) < 1e-6*all: // of a weight that the output does not depend on, as the biases of keys
			if got := largest(x); !(got <= 1e-6*all) {
				t.Errorf("d_%s: is up to %.3g, the reference up to %.3g", g.Name, got, largest(w))
			}
		case has:
			compareNumbers(t, "d_"+g.Name, x, w, 1e-4)
		}
		delete(want, g.Name)
	}
	for name := range want {
		t.Errorf("d_%s: is missing", name)
	}
}

// compareGreedy holds the arg-max continuation of a prompt to the reference.
func compareGreedy(t *testing.T, m *Model, r reference) {
	t.Helper()
	if !r.has("prompt") {
		return
	}
	prompt, _ := r.ids("prompt")
	want, _ := r.ids("greedy")
	s, err := m.Model().NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	next := prompt
	for i, id := range want {
		logits, err := s.Step(t.Context(), next, len(next))
		if err != nil {
			t.Fatal(err)
		}
		best := int32(0)
		for j, x := range logits {
			if x > logits[best] {
				best = int32(j)
			}
		}
		if best != id {
			t.Errorf("greedy token %d is %d, want %d", i, best, id)
			return
		}
		next = []int32{best}
	}
}
