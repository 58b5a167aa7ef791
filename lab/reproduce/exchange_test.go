package reproduce

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/logistic"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// smallSubject returns a decoder of bytes with the context n.
func smallSubject(t *testing.T, n int) *exchange.Subject {
	t.Helper()
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 256, Context: n, Layers: 2, Width: 16, Heads: 4, KVHeads: 2, Mechanism: "softmax", Positions: model.Rotary}, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() { // weights that differ from each other
		if strings.HasSuffix(p.Name, "_proj.weight") {
			for i := range p.Data {
				p.Data[i] *= 20
			}
		}
	}
	return &exchange.Subject{Model: m}
}

// Every method is compared with the trained model or refused, softmax is the trained model, and where
// each key has its own cell multipole is too.
func TestSwapMethods(t *testing.T) {
	s := smallSubject(t, 96)
	c := &swapConfig{Tokens: 96, Held: []string{bytes8}}
	var windows [][]int32
	for i := range 4 {
		var w []int32
		for j := range 96 {
			w = append(w, int32(rng.New(7).Fold(uint64(i)).Intn(uint64(j), 31)))
		}
		windows = append(windows, w)
	}
	ref, err := s.Ask(t.Context(), windows[3:])
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]*exchange.Reference{bytes8: ref}
	books, err := exchange.Codebooks(t.Context(), s, windows, []int{8, 300}, 0)
	if err != nil {
		t.Fatal(err)
	}
	few, many := multipoleOf(8, 1, 8, 4), multipoleOf(300, 0, 8, 4)
	losses := map[string]float64{}
	refused := 0
	for _, m := range append(slices.DeleteFunc(swapMethods(), func(m method) bool { return m.Set["cells"] != "" }), few, many) {
		book := books[0]
		if m.Set["cells"] != "8" {
			book = books[1]
		}
		if m.Set["cells"] == "" {
			book = nil
		}
		x, err := c.measure(t.Context(), s, m, book, held)
		if err != nil {
			t.Fatalf("%s: %v", m.Label, err)
		}
		if x.Refused != "" {
			refused++
			continue
		}
		losses[m.Label] = x.Kinds[bytes8].Nats
		if x.FLOPs[96] <= 0 || x.FLOPs[longTokens] <= x.FLOPs[96] {
			t.Errorf("%s: operations are %v", m.Label, x.FLOPs)
		}
	}
	if losses[softmax.Label] != 0 {
		t.Errorf("softmax loses %g", losses[softmax.Label])
	}
	if x := losses[many.Label]; x > 0.02 || x < -0.02 {
		t.Errorf("about a cell for each key loses %g", x)
	}
	if refused == 0 || len(losses) < 15 {
		t.Errorf("%d methods are refused, %d compared", refused, len(losses))
	}
}

// A page of made-up results says who is nearest, what the near field alone has, and what is missed.
func TestExchangePage(t *testing.T) {
	o := &Options{Out: t.TempDir()}
	results := new(Results)
	for i, m := range swapMethods() {
		x := swapped{Label: m.Label, Kinds: map[string]swapScore{meetings: {Cosine: 1 - 0.02*float64(i), Least: 0.5}}, Seconds: 2, Trained: 1, FLOPs: map[int]float64{512: 4e6, longTokens: 8e6}}
		if m.Name == "luna" {
			x = swapped{Label: m.Label, Refused: "exchange: mechanism luna has learned numbers (p) that mean nothing before training, and"}
		}
		addResult(t, results, "minilm-"+m.file(), []swapped{x})
	}
	addResult(t, results, "encoder-decoder", "the bart is an encoder-decoder")
	out, err := exchangeOutcome(o, results)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(out.Findings, "\n")
	for _, want := range []string{"keeps most, with 0.9800", "the near field alone has 0.74", "destroy the model", "required figures that were measured are not reached", "bart-g2p-us cannot be exchanged"} {
		if !strings.Contains(text, want) {
			t.Errorf("findings lack %q: %s", want, text)
		}
	}
	path := filepath.Join(t.TempDir(), "exchange.md")
	out.Name = "exchange"
	if err := out.WritePage(path); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.Tables[0].Note, "Refused: luna (has learned numbers") {
		t.Errorf("the note is %s", out.Tables[0].Note)
	}
}

// A classifier of vectors that tell two classes apart classifies them, and a piece with the answer has
// its rank.
func TestUseIsMeasured(t *testing.T) {
	var vectors [][]float32
	var classes []int32
	for i := range 40 {
		sign := float32(2*(i%2) - 1)
		vectors, classes = append(vectors, []float32{0.8 * sign, 0.6}), append(classes, int32(i%2))
	}
	m, _, err := logistic.FitBest(matrixOf(vectors), classes, 2, logistic.HoldOut(classes, 5))
	if err != nil {
		t.Fatal(err)
	}
	for i, class := range m.Predict(matrixOf(vectors)) {
		if class != i%2 {
			t.Fatalf("vector %d is of class %d", i, class)
		}
	}
	q := question{vector: []float32{1, 0}, gold: []int{1, 3}}
	if rank := rankOf(q, [][]float32{{0.9, 0}, {0.2, 0}, {0.8, 0}, {0.5, 0}}); rank != 3 {
		t.Errorf("the rank is %d", rank)
	}
}
