// Command swap has a model's attention block, as one writes it, and exchanges its
// softmax for attention whose cost grows linearly.
package main

import (
	"fmt"
	"log"
	"math"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/rng"
)

const tokens, width, heads = 64, 32, 4

// Block is x + W·attention(x), causal, of one's own.
type Block struct {
	q, k, v, o []float32 // [width, width]
	attend     Attention
}

// Attention takes and returns heads of tokens, [heads, tokens, width/heads].
type Attention func(q, k, v []float32) ([]float32, error)

// Softmax is what was there: it compares each token with each before it.
func Softmax(q, k, v []float32) ([]float32, error) {
	const d = width / heads
	out := make([]float32, len(v))
	for i := range heads * tokens {
		first := i / tokens * tokens // of this head
		weights, sum := make([]float64, i+1-first), 0.0
		for j := range weights {
			var score float64
			for c := range d {
				score += float64(q[i*d+c]) * float64(k[(first+j)*d+c])
			}
			weights[j] = math.Exp(score / math.Sqrt(d))
			sum += weights[j]
		}
		for j, w := range weights {
			for c := range d {
				out[i*d+c] += float32(w/sum) * v[(first+j)*d+c]
			}
		}
	}
	return out, nil
}

// Farfield is what takes its place: a name of farfield's catalogue.
func Farfield(name string) Attention {
	return func(q, k, v []float32) ([]float32, error) {
		return farfield.Attend(name, q, k, v, farfield.Options{Width: width / heads, Heads: heads, Causal: true})
	}
}

// Forward returns the block's output for x, [tokens, width].
func (b *Block) Forward(x []float32) ([]float32, error) {
	y, err := b.attend(splitHeads(multiplyRows(x, b.q)), splitHeads(multiplyRows(x, b.k)), splitHeads(multiplyRows(x, b.v)))
	if err != nil {
		return nil, err
	}
	out := multiplyRows(joinHeads(y), b.o)
	for i := range out {
		out[i] += x[i]
	}
	return out, nil
}

func main() {
	b := &Block{q: randomMatrix(1, width*width), k: randomMatrix(2, width*width), v: randomMatrix(3, width*width), o: randomMatrix(4, width*width)}
	x := randomMatrix(5, tokens*width)
	forward := func(a Attention) []float32 {
		b.attend = a
		out, err := b.Forward(x)
		if err != nil {
			log.Fatal(err)
		}
		return out
	}

	softmax := forward(Softmax)
	fmt.Println("softmax is softmax:", maxDifference(softmax, forward(Farfield("softmax"))) < 1e-4)

	// Another function: a model is trained with it, weights of softmax do not fit.
	linear := forward(Farfield("fastmax"))
	fmt.Println("fastmax is another function:", maxDifference(softmax, linear) > 1e-2)

	last := x[(tokens-1)*width:]
	clear(last)
	changed := forward(Farfield("fastmax"))
	before := (tokens - 1) * width
	fmt.Println("no token sees those after it:", maxDifference(linear[:before], changed[:before]) == 0)
}

// splitHeads turns [tokens, width] into heads, and join turns them back.
func splitHeads(x []float32) []float32 {
	const d = width / heads
	y := make([]float32, len(x))
	for i := range tokens {
		for h := range heads {
			copy(y[(h*tokens+i)*d:][:d], x[i*width+h*d:])
		}
	}
	return y
}

func joinHeads(y []float32) []float32 {
	const d = width / heads
	x := make([]float32, len(y))
	for i := range tokens {
		for h := range heads {
			copy(x[i*width+h*d:][:d], y[(h*tokens+i)*d:])
		}
	}
	return x
}

// multiplyRows returns x·w, [tokens, width].
func multiplyRows(x, w []float32) []float32 {
	y := make([]float32, len(x))
	for i := range tokens {
		for c := range width {
			for j := range width {
				y[i*width+j] += x[i*width+c] * w[c*width+j]
			}
		}
	}
	return y
}

// randomMatrix returns n numbers of deviation 1/√width.
func randomMatrix(seed uint64, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.New(seed).Normal(uint64(i)) / math.Sqrt(width))
	}
	return x
}

// maxDifference is the largest difference.
func maxDifference(a, b []float32) (most float64) {
	for i := range a {
		most = max(most, math.Abs(float64(a[i]-b[i])))
	}
	return most
}
