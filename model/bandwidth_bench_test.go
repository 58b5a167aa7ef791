package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
)

// nearFar is the model of the preset default.
func nearFar() Config {
	return Config{
		Kind: Decoder, Vocab: 256, Context: 4096, Layers: 3, Width: 128, Heads: 8, Conv: 4, Positions: Rotary,
		Mechanism: "fastmax", Order: 4, Set: map[string]string{"window": "64", "scale": "1/sqrt(D)", "tau": "1"}, Tied: true,
		AttentionNorm: true, LayerWindows: []int{0, 64, 64},
	}
}

// stepBytes counts the bytes of memory that a step of a near-far model moves: weights, once for all
// sessions, and the state of each session.
//
// A head of a layer with a far field reads its sums, the keys and values of its window, and on average of half an
// open chunk. Its token's rows are written to both. The end of a chunk reads the chunk, and reads
// and writes the sums. A head with the near field alone reads its keys and values.
func stepBytes(m *Model) (weights, state float64) {
	c := m.config
	const window = 64
	a := m.main.blocks[0].mixer.(*nn.Attention)
	d := float64(c.Width / c.Heads)
	p := a.Mechanism.Plan(attention.Shape{B: 1, H: c.Heads, Hkv: c.Heads, N: 1, M: 1, D: int(d), Dv: int(d), Form: attention.Step, Causal: true})
	chunk, sums, row := float64(p.Chunk), float64(p.F)*(d+1), 2*d
	head := sums + window*row + (chunk+1)/2*row + // read
		row + 3*d + // written
		(chunk*row+2*sums)/chunk // at the end of a chunk
	heads, convs := 0.0, 0.0
	for i := range c.Layers {
		if c.layerWindow(i) > 0 {
			heads += float64(c.Heads) * (window*row + row + d)
		} else {
			heads += float64(c.Heads) * head
		}
	}
	for i := range m.main.blocks {
		if b := &m.main.blocks[i]; b.conv != nil {
			convs += 2 * float64(b.conv.PastSize()) // read and written
		}
	}
	return 4 * float64(m.params.Size()), 4 * (heads + convs)
}

// readingPiece is the number of elements of a piece.
const readingPiece = 1 << 14
