// Package exchange puts multipole attention in the place of the softmax of a trained model. It
// makes codebooks of the keys of each layer, measures the exchanged model against the trained one,
// and chooses the cheapest cells, order, near field and layers that lose no more than is allowed.
package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/kmeans"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

const (
	// Name is the mechanism that replaces softmax.
	Name = "multipole"
	// DefaultTokens is the number of tokens whose keys make the codebooks.
	DefaultTokens = 16384
	// DefaultFit is the number of tokens whose attention fits the cells.
	DefaultFit = 8192
	// MaxLength bounds the tokens of a pass if the model does not.
	MaxLength = 4096

	defaultCosine, defaultNats = 0.99, 0.02
	heldTokens                 = 8192    // that a model is judged by
	fewWindows                 = 4       // that a layer alone is judged by
	maxKeyBytes                = 2 << 30 // of the keys of a calibration
	multipoleSinks             = 1
	multipoleEnds              = 1
)

// Wish is what a model may lose. A zero field asks for its default.
type Wish struct {
	Cosine float64 // least mean cosine between an encoder's vectors before and after
	Nats   float64 // nats a token by which a decoder may get worse
	State  int64   // most bytes of the state of a sequence in a decoder; 0: any
}

// Options holds the choices of Run.
type Options struct {
	// Cells, Order, Block and Window are taken as given; nil: Run chooses them.
	Cells, Order, Block, Window *int
	// Layers lists the layers that get the mechanism; nil: all that have plain softmax.
	Layers []int
	Wish   *Wish // nil: the defaults, or no wish if Cells, Order, Block or Window is given
	Length int   // tokens of a sequence for which the cost is counted
	Tokens int   // tokens of the calibration; 0: DefaultTokens
	Fit    int   // tokens of the calibration by which cells of orders 0 and 1 are fitted; 0: no fit
	// Updates is the number of updates that train the queries of the cells, from where Fit leaves
	// them, towards the outputs of the trained model; 0: none.
	// Windows of the calibration that no update draws decide whether the updates are kept.
	Updates int
	// UpdatesFolder is a folder in which updates are saved, so that a Run of the same goes on from there
	// after an interruption; "": none. Run neither needs nor removes the folder.
	UpdatesFolder string
	// NotSaved is called with the error if updates cannot be saved: the first time, and the first time
	// after one that succeeded. Run goes on, and tries again later. It may be nil.
	NotSaved func(error)
	Seed     uint64
	// Say is called with each step and the share of the work that is done. It may be nil.
	Say func(text string, share float64)
}

// FitTokens returns the number of tokens that cells are fitted to: fit, or if it is nil as many of tokens
// as DefaultFit allows. Cells of order 2 are not fitted. It returns an error if fit is below 0 or
// above tokens, or cells of an order that is given cannot be fitted.
func FitTokens(fit, order *int, tokens int) (int, error) {
	above := order != nil && *order > 1
	switch {
	case fit == nil && above:
		return 0, nil
	case fit == nil:
		return min(DefaultFit, tokens), nil
	case *fit < 0 || *fit > tokens:
		return 0, fmt.Errorf("fit: %d tokens, needs 0 to %d, of which codebooks are made", *fit, tokens)
	case *fit > 0 && above:
		return 0, fmt.Errorf("fit: %d tokens, and order is %d; only cells of orders 0 and 1 are fitted", *fit, *order)
	}
	return *fit, nil
}

// Texts holds texts as windows of tokens.
type Texts struct {
	Calibration [][]int32 // windows whose keys make the codebooks
	HeldOut     [][]int32 // windows on which losses are measured
	Other       [][]int32 // windows of another kind on which losses are measured, too; nil: none
}

// Choice holds the settings of multipole that the layers get.
type Choice struct {
	Cells  int `json:"cells"` // cells of a codebook; 0: clusters of the input
	Order  int `json:"order"`
	Block  int `json:"block"`
	Window int `json:"window"`
	// Fitted reports that each cell is also expanded about the mean query of the trained model.
	Fitted bool `json:"fitted,omitempty"`
	// Tol bounds the estimated error with clusters of the input, which need no codebook. Block and
	// Window are then those of the near field that is measured beside them.
	Tol float64 `json:"tol,omitempty"`
}

// String describes the choice in words.
func (c Choice) String() string {
	if c.Tol > 0 {
		return fmt.Sprintf("clusters of the input, tol %g", c.Tol)
	}
	fitted := ""
	if c.Fitted {
		fitted = ", fitted"
	}
	return fmt.Sprintf("%d cells of order %d, block %d, window %d%s", c.Cells, c.Order, c.Block, c.Window, fitted)
}

// place is what the queries of cells depend on.
func (c Choice) place() Choice { return Choice{Cells: c.Cells, Block: c.Block, Window: c.Window} }

func (c Choice) field() field { return field{c.Block, c.Window, multipoleSinks, multipoleEnds} }

// exceeds reports whether c has all that d has: where c fails, d fails.
func (c Choice) exceeds(d Choice) bool {
	return c.Order == d.Order && c.Fitted == d.Fitted && c.Cells >= d.Cells && c.Block+c.Window >= d.Block+d.Window
}

// Trial is a choice that was measured in all layers at once.
type Trial struct {
	Choice
	Cost    float64  `json:"flops"`             // operations of attention for Options.Length tokens
	Updates int      `json:"updates,omitempty"` // updates that trained the queries of its cells
	Pairs   float64  `json:"pairs,omitempty"`   // share of the pairs that clusters of the input compute one by one
	Quality Quality  `json:"held_out"`
	Other   *Quality `json:"other_texts,omitempty"`

	tried bool
}

// loss is the greater of both losses.
func (t Trial) loss() float64 {
	if t.Other != nil {
		return max(t.Quality.Loss(), t.Other.Loss())
	}
	return t.Quality.Loss()
}

// Layer holds the measurements of a layer that can have another function.
type Layer struct {
	Number int  `json:"layer"`
	Exact  bool `json:"exact"` // the layer keeps its own function
	// Alone is the loss of the model if only this layer has the choice, NearAlone if it has only
	// the near field of the choice.
	Alone     float64   `json:"loss_alone"`
	NearAlone float64   `json:"loss_near_alone"`
	FarShare  float64   `json:"far_share"` // share of a query's weight on far keys in the trained model
	Distances []float64 `json:"distances"` // of held-out keys from their centres, for each key head
	// WildShare is the mean share of a query's weight on wild weights (attention.Diagnosis), which
	// orders 1 and 2 can have.
	WildShare float64 `json:"wild_share,omitempty"`
	FLOPs     float64 `json:"flops"` // operations of the layer's function for Options.Length tokens
	State     float64 `json:"state_bytes,omitempty"`
}

// Time holds the measured times of one layer's attention for a sequence.
type Time struct {
	Tokens    int     `json:"tokens"`
	Trained   float64 `json:"trained_seconds"`
	Choice    float64 `json:"choice_seconds"`
	NearAlone float64 `json:"near_alone_seconds"`
	// CacheBytes and StateBytes are what a decoder's session keeps for a layer, with softmax and
	// with the choice.
	CacheBytes float64 `json:"cache_bytes,omitempty"`
	StateBytes float64 `json:"state_bytes,omitempty"`
}

// Result holds what Run has found.
type Result struct {
	Measure   string   `json:"measure"` // cosine or nats
	Wish      *float64 `json:"wish"`    // loss that was allowed; nil: none was named
	Meets     bool     `json:"meets_wish"`
	Choice    Choice   `json:"choice"`
	Why       string   `json:"why"` // why the choice is a codebook or clusters of the input
	Exchanged []int    `json:"exchanged_layers"`
	Exact     []int    `json:"exact_layers"`
	Whole     Quality  `json:"whole"`
	NearAlone Quality  `json:"near_alone"`
	Other     *Quality `json:"other_texts,omitempty"`
	// Unfitted is the loss of the same cells without a fit. NearFitted is the loss if the near
	// field is joined by fitted far keys and values in place of those of the input. Both are for
	// held-out texts and texts of another kind.
	Unfitted   []Quality `json:"unfitted,omitempty"`
	NearFitted []Quality `json:"near_fitted,omitempty"`
	FitTokens  int       `json:"fit_tokens,omitempty"`
	// Updates is the number of updates that trained the queries of the cells and are kept. Untuned
	// is the loss of the fitted cells before them. UpdatesNote says what the updates that were asked
	// for did, to the cells and to the far field of NearFitted.
	Updates      int       `json:"updates,omitempty"`
	UpdatesNote  string    `json:"updates_note,omitempty"`
	Untuned      []Quality `json:"untuned,omitempty"`
	OtherNear    *Quality  `json:"other_texts_near_alone,omitempty"`
	Length       int       `json:"length"`
	TrainedFLOPs float64   `json:"trained_flops"` // operations of attention in all layers for Length tokens
	ChoiceFLOPs  float64   `json:"choice_flops"`
	NearFLOPs    float64   `json:"near_alone_flops"`
	Tokens       int       `json:"calibration_tokens"`
	Window       int       `json:"window_tokens"`
	HeldOut      int       `json:"held_out_windows"`
	Layers       []Layer   `json:"layers"`
	Trials       []Trial   `json:"trials"`
	Times        []Time    `json:"times"`

	numbers   []*array.Array
	settings  []model.LayerMechanism
	seed      uint64
	positions string
	pairs     float64 // share of the choice's pairs that are computed one by one
	largest   float64 // largest distance of the keys of a held-out window, relative to the distance of all
}

// run is the work of Run.
type run struct {
	Options
	ctx     context.Context
	s       *Subject
	config  model.Config
	layers  []int
	keys    map[int]*layerKeys // of the calibration, by layers
	held    map[int]*layerKeys
	own     map[int]attention.Mechanism
	books   map[int]map[int][]float32    // [cells][layer]: centres [key heads,cells,d]
	tilts   map[Choice]map[int][]float32 // [cells and near field][layer]: queries of cells
	untuned map[Choice]map[int][]float32 // the same before updates, where these are kept
	fitTo   [][]int32                    // windows

	calibration [][]int32    // windows that updates draw from
	judge       *Reference   // windows of the calibration that decide whether updates are kept
	trained     []*training  // of cells, by updates
	nearTrained *training    // of the near field beside the choice; nil: none
	modelHash   []byte       // of the trained model, for the names of saved updates; nil: not yet computed
	notSaved    bool         // whether the last save of updates failed
	refs        []*Reference // held-out windows, and those of another kind
	done        float64
	expected    float64
}

// say reports a step that takes as long as steps passes over the held-out windows.
func (r *run) say(steps float64, form string, args ...any) {
	if r.Say != nil {
		r.Say(fmt.Sprintf(form, args...), min(r.done/r.expected, 1))
	}
	r.done += steps
}

// expect returns about how many passes of the held-out windows Run takes. tunable is the number of choices
// that updates may train.
func (r *run) expect(texts Texts, tunable int) float64 {
	held, sets := float64(len(texts.HeldOut)), 1.0
	if texts.Other != nil {
		sets = 1 + float64(len(texts.Other))/held
	}
	trials := 5.0
	if r.allowedLoss() == nil {
		trials = 1
	}
	few := min(fewWindows, held)
	updates := 0.0
	if r.Updates > 0 { // of choices, and of the near field beside the last
		updates = float64(tunable)*(sets+r.updateSteps(texts)) + r.updateSteps(texts) + sets
	}
	return updates + (float64(len(texts.Calibration))+few)/held + sets + trials*(sets+bookPasses+fitPasses*float64(len(r.fitTo))/held) + 1 + 2*float64(len(r.layers))*few/held + 2*sets + 5*timePasses
}

// updateSteps returns about how many passes of the held-out windows the updates of a choice take.
func (r *run) updateSteps(texts Texts) float64 {
	n := len(texts.Calibration[0])
	return float64(r.Updates*((updateTokens+n-1)/n)*updatePasses) / float64(len(texts.HeldOut))
}

const (
	bookPasses = 1.5 // passes as long as making codebooks
	timePasses = 0.3 // passes as long as timing attention of a length
	fitPasses  = 2   // passes as long as fitting cells to as many windows
	timedCalls = 5   // of attention of a length, at most
)

// Run makes codebooks, measures, and chooses. Equal inputs give equal results, except for times.
// The model must not be used while Run works. Run returns an error if the model cannot have the
// mechanism, if there are too few texts, if no choice has a state as small as the wish, or if ctx
// ends.
func Run(ctx context.Context, s *Subject, texts Texts, o Options) (*Result, error) {
	r, x, err := measure(ctx, s, texts, o)
	if err != nil {
		return nil, err
	}
	return x, r.time(x)
}

// refuse finds the layers that are exchanged. It returns an error for options or texts that do not fit.
func (r *run) refuse(texts Texts) error {
	if err := r.findLayers(); err != nil {
		return err
	}
	if len(texts.Calibration) == 0 || len(texts.HeldOut) == 0 {
		return fmt.Errorf("texts: have %d windows to make codebooks of and %d to judge by, each needs 1", len(texts.Calibration), len(texts.HeldOut))
	}
	return r.checkUpdates(texts.Calibration)
}

// measure does all that Run does but time attention.
func measure(ctx context.Context, s *Subject, texts Texts, o Options) (*run, *Result, error) {
	r := &run{Options: o, ctx: ctx, s: s, config: s.Model.Config(), books: map[int]map[int][]float32{}, tilts: map[Choice]map[int][]float32{}, untuned: map[Choice]map[int][]float32{}, calibration: texts.Calibration}
	if err := r.refuse(texts); err != nil {
		return nil, nil, fault.Mark(fault.ErrInput, err)
	}
	if err := s.Model.CheckMechanisms(); err != nil {
		return nil, nil, err
	}
	x := &Result{Measure: "cosine", Length: o.Length, Window: len(texts.Calibration[0]), HeldOut: len(texts.HeldOut), seed: o.Seed, positions: s.Positions}
	if s.predictsNext() {
		x.Measure = "nats"
	}
	allowed := r.allowedLoss()
	x.Wish = allowed
	if o.Fit > 0 {
		r.fitTo = spread(texts.Calibration, o.Fit)
	}
	for _, ids := range texts.Calibration {
		x.Tokens += max(len(ids)-r.nearToAll(), 0)
	}
	list, err := r.candidates(x.Tokens)
	if err != nil {
		return nil, nil, err
	}
	tunable := 0
	for _, t := range list {
		if t.Fitted {
			tunable++
		}
	}
	r.expected = r.expect(texts, tunable)
	if err := r.gather(texts); err != nil {
		return nil, nil, err
	}
	best, err := r.search(list, allowed, x)
	if err != nil {
		return nil, nil, err
	}
	if o.Updates > 0 {
		var judge [][]int32
		r.calibration, judge = leaveOut(texts.Calibration, r.fitTo)
		if r.judge, err = s.Ask(ctx, judge); err != nil {
			return nil, nil, err
		}
		training := float64(len(r.refs)) + r.updateSteps(texts)
		most := mostTrained(list, best, allowed)
		r.expected -= float64(tunable-most) * training
		if best, err = r.tune(list, best, allowed, x); err != nil {
			return nil, nil, err
		}
		r.expected -= float64(most-len(r.trained)) * training
	}
	if best, err = r.searchInput(best, allowed, x); err != nil {
		return nil, nil, err
	}
	x.Choice, x.Meets = best.Choice, allowed == nil || best.loss() <= *allowed
	if err := r.measureLayers(x, texts); err != nil {
		return nil, nil, err
	}
	exact, err := r.keepExact(x, allowed)
	if err != nil {
		return nil, nil, err
	}
	if err := r.measureWhole(x, exact); err != nil {
		return nil, nil, err
	}
	if err := r.finish(x, exact); err != nil {
		return nil, nil, err
	}
	return r, x, nil
}

// allowedLoss returns the loss that the wish allows; nil: any.
func (r *run) allowedLoss() *float64 {
	w := r.Wish
	if w == nil {
		if r.Cells != nil || r.Order != nil || r.Block != nil || r.Window != nil {
			return nil
		}
		w = &Wish{}
	}
	loss := 1 - w.Cosine
	if w.Cosine == 0 {
		loss = 1 - defaultCosine
	}
	if r.s.predictsNext() {
		if loss = w.Nats; loss == 0 {
			loss = defaultNats
		}
	}
	return &loss
}

// request returns the exchange of a choice in layers. Numbers name the codebooks alone where centres
// is nil.
func (r *run) request(c Choice, layers []int) model.Exchange {
	if c.Tol > 0 {
		return model.Exchange{Mechanism: Name, Layers: layers, Set: map[string]string{"centres": "input", "tol": strconv.FormatFloat(c.Tol, 'g', -1, 64)}}
	}
	x := model.Exchange{Mechanism: Name, Order: c.Order, Layers: layers, Numbers: map[string][]float32{}, Set: map[string]string{
		"cells": strconv.Itoa(c.Cells), "block": strconv.Itoa(c.Block), "window": strconv.Itoa(c.Window),
		"sinks": strconv.Itoa(multipoleSinks), "ends": strconv.Itoa(multipoleEnds),
	}}
	if c.Fitted {
		x.Set["tilt"] = "true"
	}
	for _, i := range layers {
		x.Numbers[layerName(i)+".codebook"] = r.books[c.Cells][i]
		if c.Fitted {
			x.Numbers[layerName(i)+".tilt"] = r.tilts[c.place()][i]
		}
	}
	return x
}

// findLayers sets the layers that can have the mechanism. It returns an error if there are none, or
// the model cannot have it.
func (r *run) findLayers() error {
	list := r.config.Mechanisms()
	if r.Layers != nil {
		r.layers = slices.Clone(r.Layers)
		slices.Sort(r.layers)
		r.layers = slices.Compact(r.layers)
		for _, i := range r.layers {
			if i < 0 || i >= len(list) {
				return fmt.Errorf("layers: %d is given, the model has %d layers of attention, counted from 0", i, len(list))
			}
			if name := list[i].Mechanism; name != "softmax" && name != "local" {
				return fmt.Errorf("layers: layer %d has mechanism %s, and %s takes the place of softmax", i, name, Name)
			}
		}
	} else {
		for i, x := range list {
			if x.Mechanism == "softmax" {
				r.layers = append(r.layers, i)
			}
		}
	}
	if len(r.layers) == 0 {
		return fmt.Errorf("layers: none of %d has softmax of all keys, whose place %s takes; the mechanism of the model is %s", r.config.Layers, Name, r.config.Mechanism)
	}
	_, err := r.config.Exchanged(r.request(Choice{Cells: 1, Block: 32, Window: 16}, r.layers))
	return err
}

// take passes windows through the trained model and returns the keys of its layers. A window is as long
// as steps passes of the held-out windows.
func (r *run) take(windows [][]int32, steps float64) (map[int]*layerKeys, error) {
	r.own = map[int]attention.Mechanism{}
	keys := map[int]*layerKeys{}
	restore := model.WrapMechanisms(r.s.Model, func(name string, of attention.Mechanism) attention.Mechanism {
		i := numberOf(name)
		if !slices.Contains(r.layers, i) {
			return of
		}
		r.own[i] = of
		keys[i] = &layerKeys{number: i, name: name}
		return newTaker(of, keys[i], Choice{Block: 1}.field())
	})
	defer restore()
	for i, ids := range windows {
		r.say(steps, "keys of window %d of %d", i+1, len(windows))
		if _, err := r.s.answer(r.ctx, ids); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// keyCount returns the number of keys of the calibration in a head.
func (r *run) keyCount() int {
	k := r.keys[r.layers[0]]
	if len(k.rows) == 0 {
		return 0
	}
	return len(k.rows[0]) / k.d
}

// gather passes the texts through the trained model: it keeps the keys of its layers and its answers.
func (r *run) gather(texts Texts) error {
	steps := 1 / float64(len(texts.HeldOut))
	var err error
	if r.keys, err = r.take(texts.Calibration, steps); err != nil {
		return err
	}
	if r.held, err = r.take(texts.HeldOut[:min(fewWindows, len(texts.HeldOut))], steps); err != nil {
		return err
	}
	if r.keyCount() == 0 || len(r.held[r.layers[0]].rows[0]) == 0 {
		return errors.New("texts: have no keys beside the first and the last of each window; give longer texts")
	}
	r.say(float64(1+len(texts.Other)/max(len(texts.HeldOut), 1)), "answers of the trained model")
	for _, windows := range [][][]int32{texts.HeldOut, texts.Other} {
		if windows == nil {
			continue
		}
		ref, err := r.s.Ask(r.ctx, windows)
		if err != nil {
			return err
		}
		r.refs = append(r.refs, ref)
	}
	return nil
}

// candidates returns the choices that are possible, the cheapest first. keys is the number of
// calibration keys of a head.
func (r *run) candidates(keys int) ([]Trial, error) {
	cells, orders := []int{64, 128, 256, 512, 1024}, []int{0, 1, 2}
	near := [][2]int{{32, 16}, {64, 32}}
	none := r.allowedLoss() == nil
	if r.Cells != nil {
		cells = []int{*r.Cells}
		if err := checkCells(*r.Cells, keys); err != nil {
			return nil, err
		}
	} else if none {
		cells = []int{256}
	}
	if r.Order != nil {
		orders = []int{*r.Order}
	} else if none {
		orders = []int{0}
	}
	if none || r.Block != nil || r.Window != nil {
		near = [][2]int{{32, 16}}
		if r.Block != nil {
			near[0][0] = *r.Block
		}
		if r.Window != nil {
			near[0][1] = *r.Window
		}
	}
	cells = slices.DeleteFunc(cells, func(k int) bool { return r.Cells == nil && 2*k > keys && k > 64 })
	if cells[0] > keys {
		cells[0] = keys
	}
	var list []Trial
	states := math.Inf(1)
	for _, k := range cells {
		for _, p := range orders {
			for _, b := range near {
				t := Trial{Choice: Choice{Cells: k, Order: p, Block: b[0], Window: b[1], Fitted: p < 2 && r.fitTo != nil}}
				for _, i := range r.layers {
					m, err := r.bare(i, t.Choice)
					if err != nil {
						return nil, err
					}
					plan := m.Plan(r.shape(r.Length))
					t.Cost += plan.FLOPs
					if r.Wish != nil && r.Wish.State > 0 && i == r.layers[0] {
						bytes := plan.State * float64(len(r.layers))
						if states = min(states, bytes); bytes > float64(r.Wish.State) {
							t.Cost = math.Inf(1)
							break
						}
					}
				}
				if !math.IsInf(t.Cost, 1) {
					list = append(list, t)
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("state: %d bytes are wished, the least that the choices have is %.0f", r.Wish.State, states)
	}
	slices.SortStableFunc(list, func(a, b Trial) int {
		switch {
		case a.Cost < b.Cost:
			return -1
		case a.Cost > b.Cost:
			return 1
		}
		return 0
	})
	return list, nil
}

// checkCells returns an error if cells are more than keys.
func checkCells(cells, keys int) error {
	if cells > keys {
		return fmt.Errorf("cells: %d, but texts have only %d keys to make them of; give more texts or tokens", cells, keys)
	}
	return nil
}

// shape returns the shape of a layer's call of n tokens.
func (r *run) shape(n int) attention.Shape {
	c := r.config
	d := cmp.Or(c.HeadWidth, c.Width/c.Heads)
	return attention.Shape{B: 1, H: c.Heads, Hkv: cmp.Or(c.KVHeads, c.Heads), N: n, M: n, D: d, Dv: d, Causal: c.IsCausal()}
}

// nearToAll returns the number of keys of a sequence that are in no cell.
func (r *run) nearToAll() int {
	if r.config.IsCausal() {
		return multipoleSinks
	}
	return multipoleSinks + multipoleEnds
}

// scaleOf returns the setting scale of a layer; "": 1/√D.
func (r *run) scaleOf(layer int) string { return r.config.Mechanisms()[layer].Set["scale"] }

// bare returns the mechanism of a choice in a layer with other centres than the layer's.
func (r *run) bare(layer int, c Choice) (attention.Mechanism, error) {
	shape, x := r.shape(1), r.request(c, nil)
	if s := r.scaleOf(layer); s != "" {
		x.Set["scale"] = s
	}
	return mechanism.New(Name, mechanism.Options{Order: c.Order, Heads: shape.H, KeyHeads: shape.Hkv, Width: shape.D, Set: x.Set})
}

// mechanism returns the mechanism of a choice in a layer.
func (r *run) mechanism(layer int, c Choice) (attention.Mechanism, error) {
	m, err := r.bare(layer, c)
	if err != nil || c.Tol > 0 {
		return m, err
	}
	book, err := m.Constants().Get("codebook")
	if err != nil {
		return nil, err
	}
	centres := r.books[c.Cells][layer]
	if len(centres) != len(book.Data) {
		return nil, fmt.Errorf("codebook of layer %d: has %d numbers, %s has %d", layer, len(centres), Name, len(book.Data))
	}
	copy(book.Data, centres)
	if c.Fitted {
		tilt, err := m.Params().Get("tilt")
		if err != nil {
			return nil, err
		}
		copy(tilt.Data, r.tilts[c.place()][layer])
	}
	return m, nil
}

// near returns the near field of a choice in a layer, as a mechanism.
func (r *run) near(layer int, c Choice) attention.Mechanism {
	return newNearAlone(c.field(), r.scaleNumber(layer))
}

// scaleNumber returns the scale of the scores of a layer; 0: 1/√D.
func (r *run) scaleNumber(layer int) float64 {
	scale, _ := strconv.ParseFloat(r.scaleOf(layer), 64)
	return scale
}

// makeBooks makes the codebooks of cells centres.
func (r *run) makeBooks(cells int) error {
	if r.books[cells] != nil {
		return nil
	}
	r.say(bookPasses, "codebooks of %d cells", cells)
	type part struct{ layer, head int }
	var parts []part
	books := map[int][]float32{}
	for _, i := range r.layers {
		k := r.keys[i]
		books[i] = make([]float32, k.keyHeads*cells*k.d)
		for h := range k.keyHeads {
			parts = append(parts, part{i, h})
		}
	}
	par.RunParts(len(parts), func(n int) {
		if r.ctx.Err() != nil {
			return
		}
		p := parts[n]
		k := r.keys[p.layer]
		key := rng.New(r.Seed).Fold(uint64(p.layer)).Fold(uint64(p.head))
		centres, err := kmeans.Centres(r.ctx, k.rows[p.head], k.d, cells, key)
		if err != nil {
			return // the context has ended
		}
		copy(books[p.layer][p.head*cells*k.d:], centres)
	})
	r.books[cells] = books
	return r.ctx.Err()
}

// evaluate measures the model in which layers have the choice, or its near field alone.
func (r *run) evaluate(c Choice, layers []int, nearAlone bool, ref *Reference, most int) (q Quality, err error) {
	list := map[int]attention.Mechanism{}
	for _, i := range layers {
		if nearAlone {
			list[i] = r.near(i, c)
		} else if list[i], err = r.mechanism(i, c); err != nil {
			return q, err
		}
	}
	return r.compare(list, ref, most)
}

// compare measures the model whose layers have the mechanisms of list.
func (r *run) compare(list map[int]attention.Mechanism, ref *Reference, most int) (q Quality, err error) {
	err = r.s.with(func(i int) attention.Mechanism { return list[i] }, func() (err error) {
		q, err = r.s.Compare(r.ctx, ref, most)
		return err
	})
	return q, err
}

// try measures a choice in layers on all texts.
func (r *run) try(t *Trial, layers []int) (err error) {
	if t.Tol == 0 {
		if err := r.makeBooks(t.Cells); err != nil {
			return err
		}
		if err := r.fit(t.Choice); err != nil {
			return err
		}
	}
	t.tried = true
	r.say(float64(len(r.refs)), "%v in %d layers", t.Choice, len(layers))
	if t.Quality, err = r.evaluate(t.Choice, layers, false, r.refs[0], math.MaxInt); err != nil || len(r.refs) == 1 {
		return err
	}
	other, err := r.evaluate(t.Choice, layers, false, r.refs[1], math.MaxInt)
	t.Other = &other
	return err
}

// search returns the cheapest trial whose loss is allowed, or if there is none the one with the least
// loss. It takes for granted that more cells and more near keys of one order lose less.
func (r *run) search(list []Trial, allowed *float64, x *Result) (*Trial, error) {
	failed := make([]bool, len(list))
	best := len(list)
	for {
		var open []int
		for i := range best {
			if !failed[i] && !list[i].tried {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		at := open[len(open)/2]
		t := &list[at]
		if err := r.try(t, r.layers); err != nil {
			return nil, err
		}
		x.Trials = append(x.Trials, *t)
		if allowed == nil || t.loss() <= *allowed {
			best = at
			continue
		}
		for i := range list {
			failed[i] = failed[i] || t.exceeds(list[i].Choice)
		}
	}
	if best < len(list) {
		return &list[best], nil
	}
	best = -1
	for i := range list {
		if list[i].tried && (best < 0 || list[i].loss() < list[best].loss()) {
			best = i
		}
	}
	return &list[best], nil
}

// measureLayers measures each layer alone.
func (r *run) measureLayers(x *Result, texts Texts) error {
	r.say(1, "weight of far keys")
	shares, err := r.s.farShares(r.ctx, texts.HeldOut[:min(2, len(texts.HeldOut))], x.Choice.field())
	if err != nil {
		return err
	}
	wild, err := r.wildShares(x.Choice, texts.HeldOut[0])
	if err != nil {
		return err
	}
	ratios, heads := make([]float64, min(fewWindows, len(texts.HeldOut))), 0.0 // distances of windows over those of all
	for n, i := range r.layers {
		l := Layer{Number: i, FarShare: shares[i], WildShare: wild[i]}
		r.say(2*float64(min(fewWindows, len(texts.HeldOut)))/float64(len(texts.HeldOut)), "layer %d alone, %d of %d", i, n+1, len(r.layers))
		for _, near := range []bool{false, true} {
			q, err := r.evaluate(x.Choice, []int{i}, near, r.refs[0], fewWindows)
			if err != nil {
				return err
			}
			if near {
				l.NearAlone = q.Loss()
			} else {
				l.Alone = q.Loss()
			}
		}
		if x.Choice.Tol > 0 {
			x.Layers = append(x.Layers, l)
			continue
		}
		k, held := r.keys[i], r.held[i]
		size := x.Choice.Cells * k.d
		for h := range k.keyHeads {
			book, rows := r.books[x.Choice.Cells][i][h*size:][:size], held.rows[h]
			all := kmeans.RootMeanDistance(rows, book, k.d)
			l.Distances = append(l.Distances, all)
			if all > 0 {
				heads++
				for w := range ratios {
					ratios[w] += kmeans.RootMeanDistance(rows[w*len(rows)/k.d/len(ratios)*k.d:(w+1)*len(rows)/k.d/len(ratios)*k.d], book, k.d) / all
				}
			}
		}
		x.Layers = append(x.Layers, l)
	}
	x.largest = slices.Max(ratios) / max(heads, 1)
	return nil
}

// keepExact returns the layers that keep their own function so that the loss is allowed: those that
// lose most alone. With a wish for the state no layer can.
func (r *run) keepExact(x *Result, allowed *float64) ([]int, error) {
	if x.Meets || r.Wish != nil && r.Wish.State > 0 {
		return nil, nil
	}
	order := make([]int, len(x.Layers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x.Layers[a].Alone > x.Layers[b].Alone:
			return -1
		case x.Layers[a].Alone < x.Layers[b].Alone:
			return 1
		}
		return 0
	})
	first := func(n int) (list []int) {
		for _, i := range order[:n] {
			list = append(list, x.Layers[i].Number)
		}
		slices.Sort(list)
		return list
	}
	var failure error
	n := 1 + sort.Search(len(order)-1, func(n int) bool {
		t := Trial{Choice: x.Choice}
		if failure == nil {
			failure = r.try(&t, r.without(first(n+1)))
		}
		return failure != nil || t.loss() <= *allowed
	})
	x.Meets = failure == nil
	return first(n), failure
}

// without returns the layers that are not exact.
func (r *run) without(exact []int) []int {
	return slices.DeleteFunc(slices.Clone(r.layers), func(i int) bool { return slices.Contains(exact, i) })
}

// measureWhole measures the model with the choice in all layers but the exact ones.
func (r *run) measureWhole(x *Result, exact []int) (err error) {
	x.Exact, x.Exchanged = append([]int{}, exact...), r.without(exact)
	r.say(2*float64(len(r.refs)), "the whole model, and its near field alone")
	if x.Choice.Fitted && len(x.Exchanged) > 0 {
		if err := r.measureFit(x); err != nil {
			return err
		}
	}
	for n, ref := range r.refs {
		for _, near := range []bool{false, true} {
			q, err := r.evaluate(x.Choice, x.Exchanged, near, ref, math.MaxInt)
			if err != nil {
				return err
			}
			switch {
			case n == 0 && near:
				x.NearAlone = q
			case n == 0:
				x.Whole = q
			case near:
				x.OtherNear = &q
			default:
				x.Other = &q
			}
		}
	}
	if r.Updates > 0 {
		x.UpdatesNote = r.describeUpdates(x, r.nearTrained)
	}
	return nil
}

// finish sets costs, settings and numbers of the result.
func (r *run) finish(x *Result, exact []int) error {
	config, err := r.config.Exchanged(r.request(x.Choice, x.Exchanged))
	if err != nil {
		return err
	}
	x.settings = make([]model.LayerMechanism, config.Layers)
	copy(x.settings, config.LayerMechanisms)
	for n := range x.Layers {
		l := &x.Layers[n]
		k := r.keys[l.Number]
		own := r.own[l.Number].Plan(r.shape(x.Length)).FLOPs
		x.TrainedFLOPs += own
		if l.Exact = slices.Contains(exact, l.Number); l.Exact {
			l.FLOPs = own
			x.ChoiceFLOPs, x.NearFLOPs = x.ChoiceFLOPs+own, x.NearFLOPs+own
			continue
		}
		m, err := r.mechanism(l.Number, x.Choice)
		if err != nil {
			return err
		}
		plan := m.Plan(r.shape(x.Length))
		if l.FLOPs = plan.FLOPs; x.Choice.Tol > 0 {
			l.FLOPs = r.inputFLOPs(x.pairs)
		}
		if k.causal {
			l.State = plan.State
		}
		x.ChoiceFLOPs += l.FLOPs
		x.NearFLOPs += r.near(l.Number, x.Choice).Plan(r.shape(x.Length)).FLOPs
		if x.Choice.Tol > 0 {
			continue
		}
		book := r.books[x.Choice.Cells][l.Number]
		a, err := array.New(layerName(l.Number)+".codebook", book, k.keyHeads, x.Choice.Cells, k.d)
		if err != nil {
			return err
		}
		x.numbers = append(x.numbers, a)
		if x.Choice.Fitted {
			if a, err = array.New(layerName(l.Number)+".tilt", r.tilts[x.Choice.place()][l.Number], k.keyHeads, x.Choice.Cells, k.d); err != nil {
				return err
			}
			x.numbers = append(x.numbers, a)
		}
	}
	return nil
}

// Manifest returns the manifest of the exchanged model's folder.
func (x *Result) Manifest() exchanged.Manifest {
	c := exchanged.Calibration{Tokens: x.Tokens, Window: x.Window, Length: x.Length, Seed: x.seed, Positions: x.positions, Measure: x.Measure,
		Value: x.Whole.value(), NearAlone: x.NearAlone.value(), ExactLayers: len(x.Exact), Distances: map[string][]float64{}, WildShares: map[string]float64{}, Largest: x.largest}
	if x.Other != nil {
		a, b := x.Other.value(), x.OtherNear.value()
		c.Other, c.OtherNear = &a, &b
	}
	for _, l := range x.Layers {
		if !l.Exact && l.Distances != nil {
			c.Distances[layerName(l.Number)] = l.Distances
		}
		if !l.Exact && l.WildShare > 0 {
			c.WildShares[layerName(l.Number)] = l.WildShare
		}
	}
	return exchanged.Manifest{Layers: x.settings, Calibration: c}
}

// Numbers returns the arrays of the codebooks, under their names in the model.
func (x *Result) Numbers() []*array.Array { return x.numbers }

// value is the number that wishes are about.
func (q Quality) value() float64 {
	if q.isDecoder {
		return q.Nats
	}
	return q.Cosine
}

// CutWindows divides the windows of texts into those of the calibration, with about tokens tokens,
// and held-out ones: the last fifth of each of up to four stretches. It returns an error if there
// are fewer than two windows.
func CutWindows(windows [][]int32, tokens int) (calibration, heldOut [][]int32, err error) {
	if len(windows) < 2 {
		return nil, nil, fmt.Errorf("texts: have %d windows of tokens, needs 2: one to make codebooks of, one to judge by; give more text, or a smaller length", len(windows))
	}
	stretches := min(4, max(1, len(windows)/10))
	for i := range stretches {
		part := windows[i*len(windows)/stretches : (i+1)*len(windows)/stretches]
		at := min(len(part)-1, (4*len(part)+4)/5)
		calibration, heldOut = append(calibration, part[:at]...), append(heldOut, part[at:]...)
	}
	return spread(calibration, tokens), spread(heldOut, heldTokens), nil
}

// Spread returns evenly spaced windows, with at most heldTokens tokens in all.
func Spread(windows [][]int32) [][]int32 { return spread(windows, heldTokens) }

// spread returns windows, spread evenly, with about tokens tokens; at least one.
func spread(windows [][]int32, tokens int) [][]int32 {
	all := 0
	for _, w := range windows {
		all += len(w)
	}
	if all <= tokens {
		return windows
	}
	n := max(1, len(windows)*tokens/all)
	list := make([][]int32, n)
	for i := range list {
		list[i] = windows[i*len(windows)/n]
	}
	return list
}

// WindowTokens returns the number of tokens in a window for sequences of length tokens; 0: any
// length. It is that length, but at least 512, and at most the context and MaxLength. With
// interpolated positions, which depend on the length of a sequence, it is length, but at least the
// number of learned positions.
func (s *Subject) WindowTokens(length int) int {
	n, context := MaxLength, s.Model.Config().TrainedContext()
	if context > 0 {
		n = min(n, context)
	}
	switch {
	case length == 0:
		return n
	case s.Positions != "":
		return min(max(length, s.Learned), context)
	}
	return max(min(n, length), min(n, 512))
}

// BoundTokens returns the number of tokens of a calibration for a model of configuration c: tokens,
// or fewer so that their keys stay below a bound of memory.
func BoundTokens(c model.Config, tokens int) int {
	heads, width := max(c.KVHeads, 1), c.HeadWidth
	if c.KVHeads == 0 {
		heads = max(c.Heads, 1)
	}
	if width == 0 {
		width = c.Width / max(c.Heads, 1)
	}
	return max(1, min(tokens, maxKeyBytes/(4*max(c.Layers*heads*width, 1))))
}

// MostTimed is the largest number of tokens for which Run times attention. Tests lower it, because these
// times are most of the time of a small model.
var MostTimed = 8192

// time measures attention of the first exchanged layer over lengths, as long as that is quick.
func (r *run) time(x *Result) error {
	if len(x.Exchanged) == 0 {
		return nil
	}
	i := x.Exchanged[0]
	chosen, err := r.mechanism(i, x.Choice)
	if err != nil {
		return err
	}
	k := r.keys[i]
	for n := 512; n <= MostTimed; n *= 2 {
		r.say(timePasses, "attention of %d tokens", n)
		c, out := r.call(i, n)
		t := Time{Tokens: n}
		for _, f := range []struct {
			m  attention.Mechanism
			to *float64
		}{{r.own[i], &t.Trained}, {chosen, &t.Choice}, {r.near(i, x.Choice), &t.NearAlone}} {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			// The least of some times, of short calls: the first brings memory.
			for begin, calls := time.Now(), 0; calls == 0 || calls < timedCalls && time.Since(begin) < time.Second/2; calls++ {
				start := time.Now()
				if err := f.m.Forward(out, c, nil); err != nil {
					return err
				}
				if seconds := time.Since(start).Seconds(); calls == 0 || seconds < *f.to {
					*f.to = seconds
				}
			}
		}
		if k.causal {
			t.CacheBytes = 4 * float64(k.keyHeads*n*(k.d+k.dv))
			t.StateBytes = chosen.Plan(r.shape(n)).State
		}
		x.Times = append(x.Times, t)
		if t.Trained > 2 {
			break
		}
	}
	return nil
}
