package golden

import (
	"context"
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Files of models hold whole stacks without embedding and head: blocks of attention and
// MLP with the norm after the sum, and a last norm. The model that computes them reads
// tokens whose embeddings are the rows of x. Its head copies, so that a session shows
// its outputs.
var modelGroup = zooGroup{name: "model", needs: []string{"x", "heads", "ff", "layers", "kind", "causal", "gelu"},
	read: func(*reader, *problem) string { return "no stack of q, k and v" },
	cases: func(f *file, t relative) (*problem, string) {
		r := &reader{f: f}
		m := &stackModule{numbers: map[string][]float64{}, shape: r.shape("x")}
		if r.err == nil && len(m.shape) != 3 {
			r.err = fmt.Errorf("x: has %d dimensions, needs 3", len(m.shape))
		}
		p := &problem{name: f.stem(), mechanism: "softmax", tolerance: t, do: r.heads("go"), forms: []string{"direct"}}
		if r.err != nil {
			return p.finish(r), ""
		}
		if m.shape[0]*m.shape[1] < m.shape[2] {
			return nil, "fewer tokens than channels, which the head of a model cannot copy"
		}
		m.config = model.Config{
			Kind: model.Encoder, Vocab: m.shape[0] * m.shape[1], Layers: r.integer("layers"), Heads: r.integer("heads"), Width: m.shape[2],
			Hidden: r.integer("ff"), Context: m.shape[1], Positions: model.NoPosition, Activation: model.ReLU, PostNorm: true, Bias: true,
		}
		if r.truth("causal") {
			m.config.Kind = model.Decoder
		}
		if r.truth("gelu") {
			m.config.Activation = model.GELU
		}
		if r.truth("kind") {
			p.mechanism = "linear"
		}
		m.config.Mechanism = p.mechanism
		if f.hasArray("lengths") {
			m.lengths = r.ints("lengths")
		}
		for _, name := range f.sortedNames() {
			if shape := r.shape(name); len(shape) > 0 && name != "lengths" {
				m.numbers[name] = r.floats(name)
			}
			if strings.HasPrefix(name, "d_") {
				p.result(r, "d", name)
			}
		}
		p.result(r, "o", "out")
		if m.config.Kind == model.Decoder {
			p.want = append(p.want, expect{stepped, "o", m.numbers["out"]})
		}
		p.compute = func() (map[string][]float64, error) {
			return stackResults(m)
		}
		return p.finish(r), ""
	}}

// stepped names the outputs of a session that is fed token by token.
const stepped = "out, step by step"

// stackModule is a file's stack.
type stackModule struct {
	config  model.Config
	shape   []int // of x
	lengths []int64
	numbers map[string][]float64
}

// theirs is the name that the files have for a weight of a model; "" for the head.
func theirs(name string) string {
	if strings.HasPrefix(name, "head.") {
		return ""
	}
	return strings.NewReplacer("embed.weight", "x", "attn.q_proj", "attention.query_projection", "attn.k_proj", "attention.key_projection",
		"attn.v_proj", "attention.value_projection", "attn.o_proj", "attention.out_projection", "attn_norm", "norm1",
		"mlp.up_proj", "linear1", "mlp.down_proj", "linear2", "mlp_norm", "norm2").Replace(name)
}

// stackResults runs a model of the file's weights.
func stackResults(s *stackModule) (map[string][]float64, error) {
	m, err := model.New(s.config, rng.New(0))
	if err != nil {
		return nil, err
	}
	for _, p := range m.Params().All() {
		name := theirs(p.Name)
		if name == "" {
			copyOutputs(p)
			continue
		}
		if len(s.numbers[name]) != len(p.Data) {
			return nil, fmt.Errorf("%s: has %d elements, needs %d", name, len(s.numbers[name]), len(p.Data))
		}
		for i, x := range s.numbers[name] {
			p.Data[i] = float(x)
		}
	}
	b := &model.Batch{B: s.shape[0], N: s.shape[1], Lens: s.lengths}
	for i := range b.B * b.N {
		b.Tokens = append(b.Tokens, int32(i))
	}
	got := map[string][]float64{}
	if s.config.Kind == model.Decoder {
		session, err := m.NewSession(b.B)
		if err != nil {
			return nil, err
		}
		if got[stepped], err = stepOutputs(session.Step, m.Config(), b); err != nil {
			return nil, err
		}
	}
	y, err := m.Outputs(context.Background(), b)
	if err != nil {
		return nil, err
	}
	got["out"] = widenRows(y.Data)
	dy := tensor.NewMat(y.Rows, y.Cols)
	for i, x := range s.numbers["go"] {
		dy.Data[i] = float(x)
	}
	if err := m.BackwardOutputs(dy, 1); err != nil {
		return nil, err
	}
	for _, p := range m.Params().All() {
		got["d_"+theirs(p.Name)] = widenRows(p.Grad)
	}
	return got, nil
}

// copyOutputs makes logit i of a head output i.
func copyOutputs(p *param.Param) {
	clear(p.Data)
	if len(p.Shape) == 2 {
		for i := range p.Shape[1] {
			p.Data[i*p.Shape[1]+i] = 1
		}
	}
}

// stepOutputs returns what the step of a session gives token by token.
func stepOutputs(step func(ctx context.Context, tokens []int32, n int) ([]float, error), c model.Config, b *model.Batch) ([]float64, error) {
	width := c.Width
	all := make([]float64, b.B*b.N*width)
	for n := range b.N {
		var tokens []int32
		for r := range b.B {
			tokens = append(tokens, b.Tokens[r*b.N+n])
		}
		logits, err := step(context.Background(), tokens, 1)
		if err != nil {
			return nil, err
		}
		for r := range b.B {
			for c, x := range logits[r*c.Vocab:][:width] {
				all[(r*b.N+n)*width+c] = float64(x)
			}
		}
	}
	return all, nil
}
