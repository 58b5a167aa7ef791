package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/stream"
	"github.com/farfield-ml/farfield/tensor"
)

// NewProjections returns a source of the queries, keys and values that the attention layer with
// number layer, from 0, of a decoder projects from a text, with log-decay and rotations, and the
// mechanism of the layer with its learned parameters, which computes causal attention of them. read
// gives tokens as io.Reader gives bytes: n tokens, or -1 for an unknown number.
//
// The layers before it run along with their states, in constant memory if the states are constant
// in size. Tokens come once and in order. A run that continues sends the earlier tokens through the
// lower layers once more.
//
// NewProjections returns an error if the model is not a decoder of tokens with attention,
// layer is out of range, n exceeds learned positions, or a lower layer has no state of
// constant size.
func NewProjections(m *Model, layer int, n int64, read func(dst []int32) (int, error)) (stream.Source, attention.Mechanism, error) {
	p, err := newProjections(m, layer, n, read)
	if err != nil {
		return nil, nil, err
	}
	return p, p.layer.Mechanism, nil
}

// projections is the source of NewProjections, which can skip tokens (stream.Skipper).
type projections struct {
	lowerLayers stack // and the layer, which only projects
	layer       *nn.Attention
	lower       decoding // tokens that were read, in the lower layers
	rotation    int      // of the layer
	step        packedStep
	trace       trace

	shape        stream.Shape
	vocab        int
	maxPositions int64 // positions; 0: any number
	ids          []comm.Field
	read         func(dst []int32) (int, error)

	piece  []int32
	sum    uint32
	window *stream.Window // receives the projections; nil: none does
	filled int            // tokens in window
}

// projector is a layer of attention that stops before its mechanism.
type projector struct {
	*nn.Attention
	take func(*attention.Call)
}

func (p projector) Step(_, x tensor.Mat, _ nn.State, s nn.Scope, tr nn.Trace) error {
	p.take(p.Project(x, s, tr))
	return nil
}

// newProjections implements NewProjections.
func newProjections(m *Model, layer int, n int64, read func(dst []int32) (int, error)) (*projections, error) {
	c := &m.config
	switch {
	case !c.HasSessions():
		return nil, errors.New("model: needs a decoder of tokens with outputs at every position")
	case len(m.layers) == 0:
		return nil, fmt.Errorf("model: its mixer is %s, which has no queries, keys and values", c.Mechanism)
	case layer < 0 || layer >= len(m.layers):
		return nil, fmt.Errorf("layer: %d is not from 0 to %d", layer, len(m.layers)-1)
	case c.Positions == Learned && n > int64(c.LearnedPositions()):
		return nil, fmt.Errorf("positions: %d are needed, the learned table has %d", n, c.LearnedPositions())
	case n < 0 && m.main.turns.scaling != nil:
		return nil, fmt.Errorf("rope_scaling: kind %s rotates by the number of tokens, which is unknown", m.main.turns.scaling.Kind)
	}
	p := &projections{lowerLayers: *m.main, lower: decoding{batch: 1}, layer: m.layers[layer].attn, vocab: c.Vocab, read: read}
	p.lower.turns = m.main.turns.ofClass(m.main.turns.lengthClass(n))
	if c.Positions == Learned {
		p.maxPositions = int64(c.LearnedPositions())
	}
	a := p.layer
	p.shape = stream.Shape{B: 1, H: a.H, Hkv: a.Hkv, N: n, M: n, D: a.D, Dv: a.D}
	p.trace.blocks, p.rotation = m.main.newBlockTraces(false), c.rotationKind(layer)
	p.lowerLayers.blocks = nil
	for _, b := range m.main.blocks {
		if b.conv != nil {
			p.lower.convRows = append(p.lower.convRows, make([]float, b.conv.PastSize()))
		}
		if b.mixer == nn.Mixer(a) {
			b.mixer = projector{a, p.keepCall}
			b.branch = b.mixer
			p.lowerLayers.blocks = append(p.lowerLayers.blocks, b)
			p.lower.states = append(p.lower.states, nil)
			break
		}
		p.lowerLayers.blocks = append(p.lowerLayers.blocks, b)
		if b.mixer == nil {
			continue
		}
		state, err := stateOf(b.mixer)
		if err != nil {
			return nil, err
		}
		p.lower.states = append(p.lower.states, state)
	}
	p.ids = []comm.Field{{Name: "layer", Value: fmt.Sprint(layer)}, {Name: "weights", Value: m.weightChecksum()}}
	return p, nil
}

// stateOf returns an empty state of a layer, for one sequence of any length.
func stateOf(x nn.Mixer) (nn.State, error) {
	if t := x.Traits(); !t.Streaming {
		return nil, fmt.Errorf("layer: the state of %s grows with the tokens, those below a layer need one of constant size", t.Name)
	}
	if a, ok := x.(*nn.Attention); ok {
		return a.NewSums(1)
	}
	return x.NewState(1)
}

// weightChecksum returns a checksum that identifies the model.
func (m *Model) weightChecksum() string {
	sum := crc32.New(framed.Castagnoli)
	for _, p := range m.storedParams() {
		if w := m.compressed[p.Name]; w != nil {
			w.WriteTo(sum) // a hash returns no error
			continue
		}
		binary.Write(sum, binary.LittleEndian, p.Data) // neither fails for numbers
	}
	return fmt.Sprintf("%08x", sum.Sum32())
}

// Shape returns the shape of the stream.
func (p *projections) Shape() stream.Shape { return p.shape }

// HasDecay reports whether the layer has a log-decay.
func (p *projections) HasDecay() bool { return p.layer.Decay != nil }

// IsSequential returns true: tokens are read in order.
func (p *projections) IsSequential() bool { return true }

// IsComputed returns true: FillWindow computes layers.
func (p *projections) IsComputed() bool { return true }

// Identity returns the layer and a checksum of the weights.
func (p *projections) Identity() []comm.Field { return p.ids }

// NewWindow returns a window of n tokens for the arrays that want names.
func (p *projections) NewWindow(n int, want stream.Role) *stream.Window {
	w := stream.NewWindow(p.shape, n, want, p.HasDecay())
	if f := &p.lower.turns[p.rotation]; f.Pairs != nil {
		w.Call.Rope = new(attention.Rope)
		w.Call.Rope.Fill(f, 0, n)
	}
	return w
}

// FillWindow overwrites w with the next n tokens, fewer at the end of the text, and
// returns their number. It returns an error if read fails, a token is outside the
// vocabulary, or learned positions run out.
func (p *projections) FillWindow(w *stream.Window, _, _ int64, n int) (int, error) {
	start := p.lower.tokens
	w.SetTokens(n)
	p.window, p.filled = w, 0
	err := p.runTokens(int64(n))
	p.window = nil
	if err != nil {
		return 0, err
	}
	n = int(p.lower.tokens - start)
	w.SetTokens(n)
	if w.Call.Rope != nil {
		w.Call.Rope.Fill(&p.lower.turns[p.rotation], start, n)
	}
	w.Input = p.sum
	return n, nil
}

// Skip sends tokens through the lower layers up to token n. It returns an error if
// their checksum is not sum, or if FillWindow would.
func (p *projections) Skip(n int64, sum uint32) error {
	if err := p.runTokens(n - p.lower.tokens); err != nil {
		return err
	}
	if p.lower.tokens != n || p.sum != sum {
		return fault.Mark(fault.ErrInput, fault.Mark(fault.ErrMismatch, fmt.Errorf("input: checksum of the first %d tokens is %08x, the checkpoint has %08x of %d", p.lower.tokens, p.sum, sum, n)))
	}
	return nil
}

// runTokens sends n tokens through the layers, fewer at the end of the text.
func (p *projections) runTokens(n int64) error {
	for n > 0 {
		size, err := p.readTokens(int(min(n, stepPiece)))
		if err != nil || size == 0 {
			return err
		}
		p.step.clear()
		p.step.add(&p.lower, p.piece, 0, size)
		p.lowerLayers.step(&p.step, &p.trace, stepWays{})
		if err := p.step.parts[0].Err; err != nil {
			return err
		}
		p.lower.tokens += int64(size)
		n -= int64(size)
	}
	return nil
}

// readTokens reads n tokens, fewer at the end of the text.
func (p *projections) readTokens(n int) (int, error) {
	if cap(p.piece) < n {
		p.piece = make([]int32, stepPiece)
	}
	p.piece = p.piece[:n]
	got := 0
	for got < n {
		k, err := p.read(p.piece[got:])
		got += k
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("input: token %d: %w", p.lower.tokens+int64(got), err)
		}
	}
	p.piece = p.piece[:got]
	if p.maxPositions > 0 && p.lower.tokens+int64(got) > p.maxPositions {
		return 0, fault.Mark(fault.ErrInput, fmt.Errorf("positions: %d are needed, the learned table has %d", p.lower.tokens+int64(got), p.maxPositions))
	}
	var b [4]byte
	for i, t := range p.piece {
		if t < 0 || int(t) >= p.vocab {
			return 0, fault.Mark(fault.ErrInput, fmt.Errorf("input: token %d is %d, the vocabulary has %d", p.lower.tokens+int64(i), t, p.vocab))
		}
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		p.sum = crc32.Update(p.sum, framed.Castagnoli, b[:])
	}
	return got, nil
}

// keepCall copies the projections of a piece to the window.
func (p *projections) keepCall(c *attention.Call) {
	if p.window == nil {
		return
	}
	for _, x := range []struct{ to, from tensor.Heads }{
		{p.window.Call.Q, c.Q}, {p.window.Call.K, c.K}, {p.window.Call.V, c.V}, {p.window.Call.LogG, c.LogG},
	} {
		for h := range x.to.H {
			for i := range x.from.N {
				copy(x.to.Head(0, h).Row(p.filled+i), x.from.Head(0, h).Row(i))
			}
		}
	}
	p.filled += c.Q.N
}
