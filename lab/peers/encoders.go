package peers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
)

// encoderCase is a pass of an encoder. Its JSON is a case of onnxruntime_encoders.py.
type encoderCase struct {
	Name     string  `json:"name"`
	Layers   int     `json:"layers"`
	Width    int     `json:"width"`
	Heads    int     `json:"heads"`
	Hidden   int     `json:"hidden"`
	PostNorm bool    `json:"postnorm,omitempty"`
	Gated    bool    `json:"gated,omitempty"`
	Rope     bool    `json:"rope,omitempty"`
	Every    int     `json:"every,omitempty"`  // each such layer sees all keys, others the window; 0: all see all
	Window   int     `json:"window,omitempty"` // keys |p-j| < Window
	Causal   bool    `json:"causal,omitempty"` // a Llama, and the logits of the last token
	KV       int     `json:"kv,omitempty"`     // key heads of a Llama
	B        int     `json:"b"`
	N        int     `json:"n"`
	Threads  int     `json:"threads"`
	Budget   float64 `json:"budget"` // milliseconds of a turn

	// Processor says that times are of the processor, without the time in which other programs ran.
	Processor bool `json:"processor,omitempty"`
	// Precision is how weights are held: the peer has its dynamic int8 for int8, and float32 otherwise.
	Precision nn.Precision `json:"precision,omitempty"`
}

// encoderVocabulary is the number of tokens, here and in onnxruntime_encoders.py.
const encoderVocabulary = 1024

// encoderCases lists the rows of the table of encoders.
func encoderCases() []encoderCase {
	var list []encoderCase
	add := func(c encoderCase, b, n, threads int) {
		c.B, c.N, c.Threads = b, n, threads
		list = append(list, c)
	}
	small := encoderCase{Name: "minilm", Layers: 6, Width: 384, Heads: 12, Hidden: 1536, PostNorm: true}
	base := encoderCase{Name: "bert-base", Layers: 12, Width: 768, Heads: 12, Hidden: 3072, PostNorm: true}
	smol := encoderCase{Name: "smollm-135m", Layers: 30, Width: 576, Heads: 9, KV: 3, Hidden: 1536, Causal: true}
	for threads := 1; threads <= 2; threads++ {
		for _, b := range []int{1, 32} {
			for _, n := range []int{12, 64, 128, 512} {
				add(small, b, n, threads)
			}
		}
		add(base, 1, 512, threads)
		add(smol, 1, 512, threads)
		for _, n := range []int{1024, 8192} {
			add(encoderCase{Name: "modernbert-base", Layers: 22, Width: 768, Heads: 12, Hidden: 1152, Gated: true, Rope: true, Every: 3, Window: 65}, 1, n, threads)
		}
	}
	return list
}

func (c *encoderCase) key() string { return fmt.Sprintf("%s/%d/%d/%d", c.Name, c.Threads, c.B, c.N) }

// open returns a pass of farfield over random tokens.
func (c *encoderCase) open() (func() error, error) {
	if c.Causal {
		return c.openPrefill()
	}
	config := model.Config{
		Kind: model.Encoder, Vocab: encoderVocabulary, Outputs: 1, Pool: model.PoolMean, Layers: c.Layers, Heads: c.Heads,
		Width: c.Width, Hidden: c.Hidden, Context: c.N, Positions: model.Learned, Mechanism: "softmax",
		Activation: "gelu", PostNorm: c.PostNorm, Bias: c.PostNorm,
	}
	if c.Gated {
		config.Activation = "geglu"
	}
	if c.Rope {
		config.Positions = model.Rotary
	}
	for i := 0; c.Every > 0 && i < c.Layers; i++ {
		span := c.Window
		if i%c.Every == 0 {
			span = 0
		}
		config.LayerWindows = append(config.LayerWindows, span)
	}
	m, err := model.New(config, rng.New(1))
	if err != nil {
		return nil, err
	}
	tokens := make([]int32, c.B*c.N)
	for i := range tokens {
		tokens[i] = int32(i * 7919 % encoderVocabulary)
	}
	if err := hold(m, c.Precision); err != nil {
		return nil, err
	}
	batch, dst := &model.Batch{B: c.B, N: c.N, Tokens: tokens}, make([]float32, c.B)
	return func() error { return m.Logits(context.Background(), batch, dst) }, nil
}

// hold holds the weights of a model in a precision, or packs them.
func hold(m *model.Model, p nn.Precision) error {
	if p == nn.Float32 {
		m.Freeze()
	}
	return m.Compress(p)
}

// medianTime calls f for the budget, once at least, and returns the median time in milliseconds.
func medianTime(f func() error, budget time.Duration, processor bool) (float64, error) {
	var times []float64
	for start := time.Now(); len(times) == 0 || time.Since(start) < budget; {
		t, spent := time.Now(), processorTime()
		if err := f(); err != nil {
			return 0, err
		}
		took := time.Since(t)
		if processor {
			took = processorTime() - spent
		}
		times = append(times, 1e3*took.Seconds())
	}
	return bench.Median(times), nil
}

// encodersVerb times encoders beside ONNX Runtime, in turns, and prints a table.
func encodersVerb(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("encoders", flag.ContinueOnError)
	python := f.String("python", "python3", "Python with numpy, onnx and onnxruntime")
	scripts := f.String("scripts", "peers", "where the peers' programs are")
	choice := f.String("run", "", "run the cases whose name/threads/batch/tokens match")
	rounds := f.Int("rounds", 7, "rounds of turns")
	layers := f.Int("layers", 0, "layers in place of each model's own (0: its own)")
	processor := f.Bool("processor", false, "compare times of the processor, for one thread on a busy machine")
	name := f.String("precision", "f32", "how weights are held: f32, bf16 or int8, beside float32 here and, for int8, beside the peer's dynamic int8 and llama.cpp's Q8_0")
	turn := f.Duration("turn", 100*time.Millisecond, "time of a turn, one call at least")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*choice)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	precision, err := nn.ParsePrecision(*name)
	if err != nil {
		return fmt.Errorf("-precision: %w", err)
	}
	peer, err := command{args: []string{*python, filepath.Join(*scripts, "onnxruntime_encoders.py")}}.start(ctx)
	if err != nil {
		return err
	}
	defer peer.close()
	fmt.Printf("%s, %s. Medians of %d rounds.\n\n", bench.DescribeMachine(peakTime), peer.impl, *rounds)
	if precision == nn.Float32 {
		fmt.Println("| model | threads | batch | tokens | farfield ms | ONNX Runtime ms | ONNX Runtime / farfield |")
		fmt.Println("|---|--:|--:|--:|--:|--:|--:|")
	} else {
		fmt.Printf("| model | threads | batch | tokens | farfield %v ms | float32 ms | ONNX Runtime ms | float32 / %v | ONNX Runtime / %v |\n", precision, precision, precision)
		fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	}
	defer par.SetThreads(0)
	for _, c := range encoderCases() {
		if !chosen.MatchString(c.key()) {
			continue
		}
		c.Processor, c.Precision = *processor, precision
		if *layers > 0 {
			c.Layers = *layers
		}
		ours, wide, theirs, gain, ratio, err := compareEncoder(ctx, peer, c, *rounds, *turn)
		if err != nil {
			return fmt.Errorf("%s: %w", c.key(), err)
		}
		if precision == nn.Float32 {
			fmt.Printf("| %s | %d | %d | %d | %.2f | %.2f | %.2f |\n", c.Name, c.Threads, c.B, c.N, ours, theirs, ratio)
		} else {
			fmt.Printf("| %s | %d | %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", c.Name, c.Threads, c.B, c.N, ours, wide, theirs, gain, ratio)
		}
	}
	if precision != nn.Float32 {
		var decoding command
		if precision == nn.Int8 {
			decoding.args = []string{*python, filepath.Join(*scripts, "llamacpp_decoding.py")}
		}
		return comparePrecisions(ctx, chosen, *rounds, precision, decoding)
	}
	return compareDecoding(ctx, chosen, *rounds)
}

// compareEncoder returns the median times of a case here, here in float32 if its precision is another, and
// in the peer, and the median ratios of a round.
func compareEncoder(ctx context.Context, peer *process, c encoderCase, rounds int, turn time.Duration) (ours, wide, theirs, gain, ratio float64, err error) {
	par.SetThreads(c.Threads)
	defer par.SetThreads(0)
	pass, err := c.open()
	if err != nil {
		return 0, 0, 0, 0, 0, err
	}
	inFloats := pass
	if c.Precision != nn.Float32 {
		f := c
		f.Precision = nn.Float32
		if inFloats, err = f.open(); err != nil {
			return 0, 0, 0, 0, 0, err
		}
	}
	if err := errors.Join(pass(), inFloats()); err != nil {
		return 0, 0, 0, 0, 0, err
	}
	c.Budget = 1e3 * turn.Seconds()
	var a, f, b, g, r []float64
	for range rounds {
		if ctx.Err() != nil {
			return 0, 0, 0, 0, 0, ctx.Err()
		}
		time.Sleep(settle)
		x, err := medianTime(pass, turn, c.Processor)
		if err != nil {
			return 0, 0, 0, 0, 0, err
		}
		z := x
		if c.Precision != nn.Float32 {
			if z, err = medianTime(inFloats, turn, c.Processor); err != nil {
				return 0, 0, 0, 0, 0, err
			}
		}
		y, err := peer.ask(c)
		if err != nil {
			return 0, 0, 0, 0, 0, err
		}
		a, f, b = append(a, x), append(f, z), append(b, y)
		g, r = append(g, z/x), append(r, y/x)
	}
	return bench.Median(a), bench.Median(f), bench.Median(b), bench.Median(g), bench.Median(r), nil
}
