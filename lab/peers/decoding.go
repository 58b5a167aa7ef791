package peers

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
)

// smolVocabulary is the number of tokens of SmolLM-135M, here and in onnxruntime_encoders.py.
const smolVocabulary = 49152

// newLlama returns a Llama of the shape of c with random weights.
func (c *encoderCase) newLlama() (*model.Model, error) {
	return model.New(model.Config{
		Kind: model.Decoder, Vocab: smolVocabulary, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KV, Width: c.Width,
		Hidden: c.Hidden, Context: 2048, Positions: model.Rotary, Mechanism: "softmax", Activation: "swiglu", Norm: "rms", Tied: true,
	}, rng.New(1))
}

// openPrefill returns a prefill of a session and its last logits.
func (c *encoderCase) openPrefill() (func() error, error) {
	m, err := c.newLlama()
	if err != nil {
		return nil, err
	}
	if err := hold(m, c.Precision); err != nil {
		return nil, err
	}
	s, err := m.NewSession(c.B)
	if err != nil {
		return nil, err
	}
	tokens := make([]int32, c.B*c.N)
	for i := range tokens {
		tokens[i] = int32(i * 7919 % smolVocabulary)
	}
	return func() error {
		s.Reset()
		_, err := s.Step(context.Background(), tokens, c.N)
		return err
	}, nil
}

// memoryRead sums numbers, which reads them at the bandwidth of memory.
type memoryRead struct{ data, sums []float32 }

// readPiece is the number of elements of a piece: 1 MiB.
const readPiece = 1 << 18

func (r *memoryRead) RunRange(i0, i1 int) {
	r.sums[i0/readPiece] = kernel.Active[float32]().Sum(r.data[i0:i1])
}

// compareDecoding times decoding of SmolLM-135M's shape beside the reading of memory, in turns, and prints
// the share of the bandwidth.
func compareDecoding(ctx context.Context, chosen *regexp.Regexp, rounds int) error {
	const prompt, steps = 64, 16
	c := encoderCase{Name: "decode", Layers: 30, Width: 576, Heads: 9, KV: 3, Hidden: 1536, B: 1, N: 1}
	for c.Threads = 1; c.Threads <= 2; c.Threads++ {
		if !chosen.MatchString(c.key()) {
			continue
		}
		par.SetThreads(c.Threads)
		m, err := c.newLlama()
		if err != nil {
			return err
		}
		s, err := m.NewSession(1)
		if err != nil {
			return err
		}
		tokens := make([]int32, prompt)
		bytes := 4 * float64(m.Params().Size()) // the tied head reads the embeddings
		data := make([]float32, int(bytes)/4)
		for i := range data {
			data[i] = 1
		}
		read := memoryRead{data, make([]float32, len(data)/readPiece+1)}
		var times, speeds, shares []float64
		for range rounds {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.Reset()
			if _, err := s.Step(ctx, tokens, prompt); err != nil {
				return err
			}
			var step, pass []float64
			for i := range steps {
				start := time.Now()
				par.Run(len(data), readPiece, float64(len(data)), read)
				middle := time.Now()
				tokens[0] = int32(i * 31)
				if _, err := s.Step(ctx, tokens[:1], 1); err != nil {
					return err
				}
				pass, step = append(pass, middle.Sub(start).Seconds()), append(step, time.Since(middle).Seconds())
			}
			a, b := bench.Median(step), bench.Median(pass)
			times, speeds, shares = append(times, 1e3*a), append(speeds, bytes/b/1e9), append(shares, b/a)
		}
		fmt.Printf("\nDecoding of smollm-135m, %d threads: %.1f ms a token, memory read at %.1f GB/s, %.0f %% of it\n",
			c.Threads, bench.Median(times), bench.Median(speeds), 100*bench.Median(shares))
	}
	return nil
}

// peerFailures is after how many rounds without an answer a peer is left out.
const peerFailures = 3

// comparePrecisions times decoding of SmolLM-135M's shape in a precision, in float32 and if it can be started in
// a peer, in turns, by the time of the processor.
func comparePrecisions(ctx context.Context, chosen *regexp.Regexp, rounds int, p nn.Precision, peer command) error {
	const prompt, steps = 64, 16
	c := encoderCase{Name: "decode", Layers: 30, Width: 576, Heads: 9, KV: 3, Hidden: 1536, B: 1, N: 1, Threads: 1}
	if !chosen.MatchString(c.key()) {
		return nil
	}
	par.SetThreads(c.Threads)
	var sessions [2]*model.Session
	for i, p := range []nn.Precision{p, nn.Float32} {
		m, err := c.newLlama()
		if err != nil {
			return err
		}
		if err := m.Compress(p); err != nil {
			return err
		}
		if sessions[i], err = m.NewSession(1); err != nil {
			return err
		}
	}
	var other *process
	failed, name := 0, ""
	if len(peer.args) > 0 {
		var err error
		if other, err = peer.start(ctx); err != nil {
			fmt.Printf("\nDecoding: without %s: %v\n", peer.args[1], err)
		} else {
			name = other.impl + ", " + other.settings
			defer other.close()
		}
	}
	tokens := make([]int32, prompt)
	var times [2][]float64
	var ratios, theirs, gains []float64
	for range rounds {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var medians [2]float64
		for i, s := range sessions {
			s.Reset()
			if _, err := s.Step(ctx, tokens, prompt); err != nil {
				return err
			}
			var list []float64
			for k := range steps {
				tokens[0] = int32(k * 31)
				start := processorTime()
				if _, err := s.Step(ctx, tokens[:1], 1); err != nil {
					return err
				}
				list = append(list, 1e3*(processorTime()-start).Seconds())
			}
			medians[i] = bench.Median(list)
			times[i] = append(times[i], medians[i])
		}
		ratios = append(ratios, medians[1]/medians[0])
		if other != nil {
			ms, err := other.ask(map[string]int{"prompt": prompt, "steps": steps})
			if err != nil { // a round without the peer is none that counts for it
				fmt.Fprintf(os.Stderr, "decoding: %v\n", err)
				if failed++; failed == peerFailures {
					other = nil
				}
				continue
			}
			theirs, gains = append(theirs, ms), append(gains, ms/medians[0])
		}
	}
	fmt.Printf("\nDecoding of smollm-135m, 1 thread: %.2f ms a token in %v, %.2f in float32, %.2f times as long\n",
		bench.Median(times[0]), p, bench.Median(times[1]), bench.Median(ratios))
	if len(gains) > 0 {
		fmt.Printf("%s: %.2f ms a token, %.2f times as long, in %d of %d rounds\n", name, bench.Median(theirs), bench.Median(gains), len(gains), rounds)
	}
	return nil
}
