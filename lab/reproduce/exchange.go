package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

var exchangeRow = Row{
	Name:   "exchange",
	Doc:    "every mechanism of the catalogue in the place of the softmax of trained models, without training: what is kept, and what it costs, beside the near field alone",
	Source: "Vyas et al. 2020, Fast transformers with clustered attention, arXiv 2007.04825, put approximations into trained models; the models are all-MiniLM-L6-v2, stories260K, and softmax models that needle and bytelm train",
	Claim:  "no table of this setting; Vyas et al. keep RoBERTa's scores on GLUE and SQuAD with 25 clusters of queries and 32 exact keys",
	pieces: exchangePieces, outcome: exchangeOutcome,
}

// Names of models, in the folder models of the data sets.
const (
	miniLM  = "all-MiniLM-L6-v2"
	stories = "stories260K"
	g2p     = "bart-g2p-us"
)

// Settings of the near field, for all rows but those with another block.
const swapBlock, swapWindow = 32, 16

// multipoleOf returns multipole with a codebook.
func multipoleOf(cells, order, block, window int) method {
	return method{Label: fmt.Sprintf("multipole, %d cells, order %d", cells, order), Name: exchange.Name, Order: order, Set: map[string]string{
		"cells": strconv.Itoa(cells), "block": strconv.Itoa(block), "window": strconv.Itoa(window), "sinks": "1", "ends": "1",
	}}
}

// multipoleFitted returns multipole with a codebook whose cells are expanded about the queries that the
// trained model sends to them.
func multipoleFitted(cells, order, block, window int) method {
	m := multipoleOf(cells, order, block, window)
	m.Label += ", fitted"
	m.Set["tilt"] = "true"
	return m
}

// fitted returns the codebook of a method with the queries of its cells, if the method has them.
func (m *method) fitted(ctx context.Context, s *exchange.Subject, windows [][]int32, book map[string][]float32) (map[string][]float32, error) {
	if m.Set["tilt"] == "" || m.Name != exchange.Name {
		return book, nil
	}
	c := exchange.Choice{}
	c.Cells, _ = strconv.Atoi(m.Set["cells"])
	c.Block, _ = strconv.Atoi(m.Set["block"])
	c.Window, _ = strconv.Atoi(m.Set["window"])
	tilts, err := exchange.Tilts(ctx, s, windows[:min(max(exchange.DefaultFit/len(windows[0]), 1), len(windows))], book, c)
	if err != nil {
		return nil, err
	}
	maps.Copy(tilts, book)
	return tilts, nil
}

// multipoleInput returns multipole with clusters of the input, which has no short calls of softmax.
func multipoleInput(tol string) method {
	return method{Label: "multipole, clusters of the input, tol " + tol, Name: exchange.Name, Set: map[string]string{"centres": "input", "tol": tol, "least": "0"}}
}

// nearName is the name of the near field alone, which no row of the catalogue is.
const nearName = "near-field"

// nearOf returns the near field of multipoleOf without its far field.
func nearOf(block, window int) method {
	return method{Label: fmt.Sprintf("near field alone, block %d, window %d", block, window), Name: nearName,
		Set: map[string]string{"block": strconv.Itoa(block), "window": strconv.Itoa(window)}}
}

// rivals are approximations of softmax with the settings of their papers: 25 clusters and 32 keys for
// trained models (Vyas et al. 2020), chunks of 64 and 8 rounds in evaluation (Kitaev et al. 2020), 64
// landmarks (Xiong et al. 2021), 256 orthogonal features (Choromanski et al. 2021).
var rivals = []method{
	{Label: "improved-clustered, 25 clusters, 32 keys", Name: "improved-clustered", Set: map[string]string{"clusters": "25", "topk": "32"}},
	{Label: "reformer, chunks of 64, 8 rounds", Name: "reformer", Set: map[string]string{"bucket": "64", "rounds": "8"}},
	{Label: "nystrom, 64 landmarks", Name: "nystrom", Set: map[string]string{"landmarks": "64"}},
	{Label: "performer, 256 features", Name: "performer", Set: map[string]string{"features": "256"}},
}

// swapMethods are the mechanisms of the tables: softmax, multipole and its near field, windows, the
// rivals, and all others of the catalogue with their defaults.
func swapMethods() []method {
	list := []method{softmax, multipoleOf(64, 0, swapBlock, swapWindow), multipoleOf(64, 1, swapBlock, swapWindow), multipoleOf(256, 0, swapBlock, swapWindow), multipoleOf(256, 1, swapBlock, swapWindow), multipoleOf(512, 0, swapBlock, swapWindow),
		multipoleFitted(64, 0, swapBlock, swapWindow), multipoleFitted(64, 1, swapBlock, swapWindow), multipoleFitted(256, 0, swapBlock, swapWindow), multipoleFitted(256, 1, swapBlock, swapWindow), multipoleFitted(512, 0, swapBlock, swapWindow),
		multipoleInput("0.3"), multipoleInput("0.1"), nearOf(swapBlock, swapWindow), windowAlone}
	list = append(list, rivals...)
	for _, name := range mechanism.Names() {
		if !slices.ContainsFunc(list, func(m method) bool { return m.Name == name && name != windowAlone.Name }) {
			list = append(list, method{Label: name, Name: name})
		}
	}
	return list
}

// usedMethods are those whose effect on search and classes is measured.
func usedMethods() []method {
	return append([]method{softmax, multipoleOf(64, 0, swapBlock, swapWindow), multipoleOf(256, 0, swapBlock, swapWindow), multipoleOf(512, 0, swapBlock, swapWindow), nearOf(swapBlock, swapWindow), windowAlone}, rivals...)
}

// swapConfig is a comparison of methods in a trained model with the model as it was.
type swapConfig struct {
	Model   string   `json:"model"`
	Methods []method `json:"methods"`
	Tokens  int      `json:"tokens"` // of a window
	// Texts whose keys make codebooks, and texts that judge, by their kinds.
	Calibration []string `json:"calibration"`
	Held        []string `json:"held"`
	Keys        int      `json:"keys"`    // tokens of the calibration
	Windows     int      `json:"windows"` // that judge, of each kind
	Seed        uint64   `json:"seed"`
	// Training is of a model that is trained first; Steps its updates.
	Training string `json:"training,omitempty"`
	Steps    int    `json:"steps,omitempty"`

	name string
}

// swapped is what came of a method.
type swapped struct {
	Label   string               `json:"label"`
	Refused string               `json:"refused,omitempty"` // why the model cannot have it
	Kinds   map[string]swapScore `json:"kinds,omitempty"`   // by kinds of texts
	Seconds float64              `json:"seconds"`           // of processors, of all passes
	Trained float64              `json:"trained_seconds"`   // of the trained model, in turns with it
	FLOPs   map[int]float64      `json:"flops,omitempty"`   // of attention of all layers, by tokens
	State   float64              `json:"state,omitempty"`   // bytes of all layers behind a window, of decoders
	Pairs   float64              `json:"pairs,omitempty"`   // share of pairs that were computed one by one, of mechanisms that choose
	Centres float64              `json:"centres,omitempty"` // centres of a query, as a share of the keys
}

// swapScore is how near a model is to the trained one.
type swapScore struct {
	Cosine  float64 `json:"cosine,omitempty"`
	Least   float64 `json:"least,omitempty"`
	Rows    float64 `json:"rows,omitempty"`
	Nats    float64 `json:"nats,omitempty"`
	Trained float64 `json:"trained,omitempty"` // nats a token of the trained model
}

// exchangeConfigs are the comparisons of a budget.
func exchangeConfigs(o *Options) (list []*swapConfig) {
	held := pick(o.Budget, 3, 6, 12)
	for _, m := range swapMethods() {
		list = append(list, &swapConfig{name: "minilm-" + m.file(), Model: miniLM, Methods: []method{m}, Tokens: 512, Calibration: []string{meetings}, Held: []string{meetings}, Keys: 8192, Windows: held})
	}
	for _, m := range swapMethods() {
		list = append(list, &swapConfig{name: "stories-" + m.file(), Model: stories, Methods: []method{m}, Tokens: 512, Calibration: []string{tales}, Held: []string{tales, tales2}, Keys: 12000, Windows: 2 * held})
	}
	for _, m := range swapMethods() {
		list = append(list, &swapConfig{name: "bytes-" + m.file(), Training: "bytelm", Steps: pick(o.Budget, 150, 600, 3000), Methods: []method{m}, Tokens: 1024, Calibration: []string{bytes8}, Held: []string{bytes8}, Keys: 16384, Windows: 4 * held})
	}
	book := func(name string, tokens, keys, windows int, kinds []string, methods ...method) {
		list = append(list, &swapConfig{name: name, Model: miniLM, Methods: methods, Tokens: tokens, Calibration: kinds, Held: kinds, Keys: keys, Windows: windows})
	}
	book("kinds-512", 512, 8704, held, []string{meetings, novel, code}, multipoleOf(512, 0, 32, 16), multipoleOf(512, 1, 32, 16), multipoleOf(1024, 0, 32, 16), nearOf(32, 16))
	if o.Budget == Quick {
		return list
	}
	book("books-2048", 2048, 16384, held, []string{meetings}, multipoleOf(512, 0, 32, 16), multipoleOf(512, 1, 32, 16), nearOf(32, 16))
	book("books-4096", 4096, 16384, held/2, []string{meetings}, multipoleOf(512, 0, 64, 0), multipoleOf(1024, 0, 64, 0), multipoleOf(2048, 0, 64, 0), nearOf(64, 0))
	for _, x := range []struct{ tokens, windows int }{{2048, held}, {8192, held / 3}} {
		for _, tol := range []string{"0.3", "0.2", "0.1", "0.05"} {
			list = append(list, &swapConfig{name: fmt.Sprintf("input-%d-tol-%s", x.tokens, strings.TrimPrefix(tol, "0.")), Model: miniLM, Methods: []method{multipoleInput(tol)}, Tokens: x.tokens, Held: []string{meetings}, Windows: x.windows})
		}
	}
	return list
}

func exchangePieces(o *Options) (list []Piece, err error) {
	shared := &exchangeShared{o: o}
	for _, c := range exchangeConfigs(o) {
		passes := 2 * float64(c.Windows*len(c.Held)*c.Tokens*len(c.Methods))
		flops := c.passFLOPs() * (passes + float64(c.Keys))
		if c.Training != "" && c.name == exchangeTrained {
			l, err := trainedLesson(c.Training, c.Steps)
			if err != nil {
				return nil, err
			}
			config := l.configFor(&softmax, 1, 1)
			flops += l.flops(&config)
		}
		list = append(list, Piece{Name: c.name, Config: c, FLOPs: flops, run: func(w *Work) (any, error) { return c.run(w, shared) }})
	}
	for _, m := range usedMethods() {
		c := useConfig{Method: m, Meetings: pick(o.Budget, 1, 4, 16), Reviews: pick(o.Budget, 40, 150, 1000)}
		list = append(list, Piece{Name: "use-" + m.file(), Config: c, FLOPs: (&swapConfig{Model: miniLM, Tokens: useTokens}).passFLOPs() * float64(c.Meetings*16000+2*c.Reviews*reviewTokens), run: func(w *Work) (any, error) { return c.run(w, shared) }})
	}
	needles, err := needleSwaps(o, shared)
	if err != nil {
		return nil, err
	}
	list = append(list, needles...)
	list = append(list, Piece{Name: "encoder-decoder", Config: g2p, FLOPs: 1e6, run: func(*Work) (any, error) { return shared.refusal(g2p) }})
	// Long pieces and models that are trained first come last, so that a run that ends early has most
	// tables.
	slices.SortStableFunc(list, func(a, b Piece) int { return cmp.Compare(pieceRank(&a), pieceRank(&b)) })
	return list, nil
}

// pieceRank orders the pieces: what needs no training by operations, then needle, then bytes.
func pieceRank(p *Piece) float64 {
	switch c := p.Config.(type) {
	case *swapConfig:
		if c.Training != "" {
			return p.FLOPs + 1e16
		}
	case needleSwap:
		return p.FLOPs + 1e15
	}
	return p.FLOPs
}

// exchangeTrained is the piece that trains the model of bytes.
var exchangeTrained = "bytes-" + softmax.file()

// passFLOPs returns about how many operations a token of a pass takes.
func (c *swapConfig) passFLOPs() float64 {
	switch c.Model {
	case miniLM:
		return 2*10.6e6 + 6*4*384*float64(c.Tokens)
	case stories:
		return 2*260e3 + 5*4*64*float64(c.Tokens)
	}
	return 2*400e3 + 4*4*128*float64(c.Tokens)
}

// run compares the methods with the trained model.
func (c *swapConfig) run(w *Work, shared *exchangeShared) (any, error) {
	s, err := shared.subject(w, c)
	if err != nil {
		return nil, err
	}
	held := map[string]*exchange.Reference{}
	for _, kind := range c.Held {
		windows, err := shared.windows(s, c, kind, false)
		if err != nil {
			return nil, err
		}
		if held[kind], err = s.Ask(w.Ctx, windows); err != nil {
			return nil, err
		}
	}
	books := map[int]map[string][]float32{}
	var cells []int
	var windows [][]int32 // of the calibration
	for _, m := range c.Methods {
		if k, err := strconv.Atoi(m.Set["cells"]); err == nil && !slices.Contains(cells, k) && m.Name == exchange.Name {
			cells = append(cells, k)
		}
	}
	if len(cells) > 0 {
		for _, kind := range c.Calibration {
			more, err := shared.windows(s, c, kind, true)
			if err != nil {
				return nil, err
			}
			windows = append(windows, more...)
		}
		list, err := exchange.Codebooks(w.Ctx, s, windows, cells, c.Seed)
		if err != nil {
			return nil, err
		}
		for i, k := range cells {
			books[k] = list[i]
		}
	}
	results := make([]swapped, len(c.Methods))
	for i, m := range c.Methods {
		k, _ := strconv.Atoi(m.Set["cells"])
		numbers, err := m.fitted(w.Ctx, s, windows, books[k])
		if err != nil {
			return nil, err
		}
		if results[i], err = c.measure(w.Ctx, s, m, numbers, held); err != nil {
			return nil, err
		}
		w.reportShare(float64(i+1) / float64(len(c.Methods)))
	}
	return results, nil
}

// measure compares a method with the trained model. A method that the model cannot have is no error.
func (c *swapConfig) measure(ctx context.Context, s *exchange.Subject, m method, book map[string][]float32, held map[string]*exchange.Reference) (swapped, error) {
	x := swapped{Label: m.Label, Kinds: map[string]swapScore{}, FLOPs: map[int]float64{}}
	y, err := swap(s, m, book)
	if err != nil {
		x.Refused = err.Error()
		return x, nil
	}
	for _, kind := range slices.Sorted(maps.Keys(held)) {
		ref, score := held[kind], swapScore{}
		var q exchange.Quality
		// The trained model takes turns with the other one, so that both meet the same machine.
		start := processorSeconds()
		if _, err := s.Ask(ctx, ref.Windows()); err != nil {
			return x, err
		}
		between := processorSeconds()
		if q, err = y.Compare(ctx, ref, math.MaxInt); err != nil {
			if ctx.Err() != nil {
				return x, ctx.Err()
			}
			x.Refused = err.Error()
			return x, nil
		}
		x.Trained, x.Seconds = x.Trained+between-start, x.Seconds+processorSeconds()-between
		score = swapScore{q.Cosine, q.LeastCosine, q.RowCosine, q.Nats, q.TrainedNats}
		if math.IsNaN(score.Cosine) || math.IsNaN(score.Nats) || math.IsInf(score.Nats, 0) {
			x.Refused = "its outputs are not finite"
			return x, nil
		}
		x.Kinds[kind] = score
	}
	return x, c.describe(ctx, y, m, held[c.Held[0]].Windows()[0], &x)
}

// swap returns the subject with a method in the place of its softmax. Numbers are the codebooks of
// multipole.
func swap(s *exchange.Subject, m method, numbers map[string][]float32) (*exchange.Subject, error) {
	x := model.Exchange{Mechanism: m.Name, Order: m.Order, Set: m.Set, Numbers: numbers}
	if m.Name == nearName {
		block, _ := strconv.Atoi(m.Set["block"])
		window, _ := strconv.Atoi(m.Set["window"])
		x.Set, x.Factory = nil, exchange.NearAlone(block, window, 0)
	}
	y, err := s.Model.Exchanged(x)
	if err != nil {
		return nil, err
	}
	return &exchange.Subject{Model: y, Batch: s.Batch, Pool: s.Pool, Positions: s.Positions, Learned: s.Learned}, nil
}

// longTokens is a length for which operations are counted beside that of the windows.
const longTokens = 8192

// describe sets operations, state, and the share of pairs of the method in a model.
func (c *swapConfig) describe(ctx context.Context, s *exchange.Subject, m method, ids []int32, x *swapped) error {
	b := &model.Batch{B: 1, N: len(ids), Tokens: ids}
	if s.Batch != nil {
		var err error
		if b, err = s.Batch(ctx, ids); err != nil {
			return err
		}
	}
	calls := 0
	look := func(_ string, of attention.Mechanism, call *attention.Call) error {
		calls++
		shape := attention.Shape{B: 1, H: call.Q.H, Hkv: call.K.H, D: call.Q.D, Dv: call.V.D, Causal: call.Causal}
		for _, n := range []int{c.Tokens, longTokens} {
			shape.N, shape.M = n, n
			x.FLOPs[n] += of.Plan(shape).FLOPs
		}
		if m.Set["centres"] == "input" {
			keep := &attention.Saved{}
			if err := of.Forward(tensor.NewHeads(1, call.Q.H, call.Q.N, call.V.D), call, keep); err != nil {
				return err
			}
			x.Pairs += keep.ExactShare
			size := max(int(math.Sqrt(float64(call.K.N)/8)), 16)
			x.Centres += float64((call.K.N+size-1)/size) / float64(call.K.N)
		}
		return nil
	}
	err := model.ShareWatched(s.Model, look).VisitLayers(ctx, b, func(bool, int, tensor.Mat) error { return nil })
	if err != nil {
		return err
	}
	x.Pairs, x.Centres = x.Pairs/float64(calls), x.Centres/float64(calls)
	if config := s.Model.Config(); config.IsCausal() && config.HasSessions() {
		session, err := s.Model.NewSession(1)
		if err != nil {
			return nil // it has no states, so its page has none
		}
		if _, err := session.Step(ctx, ids, len(ids)); err != nil {
			return err
		}
		x.State = float64(session.Bytes())
	}
	return nil
}

// folderOf returns the folder of a model.
func folderOf(o *Options, name string) (string, error) {
	dir := filepath.Join(o.Data, "models", name)
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return "", fmt.Errorf("%s: it holds no model (farfield models fetch all-MiniLM-L6-v2; others are folders in the Hugging Face layout); %w", dir, task.ErrNoData)
	}
	return dir, nil
}
