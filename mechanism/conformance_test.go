package mechanism

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// subject is a row of the table with settings, beside its textbook.
type subject struct {
	label, name string
	o           Options
	book        oracle.Mechanism

	// whole is the textbook of a mechanism that computes whole heads, nil of
	// others, which have book. It gives A from the numbers of parameters and
	// constants, which it is given again whenever they change.
	whole func(p numbers) oracle.HeadMatrix
	// outputs is the textbook of one without A, beside whole; nil: there is one.
	outputs func(p numbers) oracle.Outputs
	// places is why a masked key is more than an absent one, "" where it is not.
	places string
	// features is the textbook of the features of a mechanism with book, from the
	// numbers drawn for rows of width d; nil: there are no features.
	features func(p numbers, d int) oracle.Features
	learns   bool // features have parameters
	// shared reports whether keys are the first queries, so that M ≤ N.
	shared bool
	// constant gives the numbers of a constant, for rows of width d, in place of
	// those that it starts from; nil: it keeps them.
	constant func(name string, shape []int, d int) []float64
	// given gives the numbers of parameters that are zeros at first; nil: they have others.
	given func(name string, shape []int) []float64
	// aligned reports that queries stand at the last keys in unmasked calls, too.
	aligned bool
	// recalls reports whether outputs also depend on earlier queries.
	recalls bool
	// frozen says that gradients are not derivatives, and why: something counts as
	// a constant in them.
	frozen string
	// rounds reports whether sums of merged states are rounded.
	rounds bool
	// average reports whether rows of A sum to one; with book they do if eps is 0.
	average bool
	// ownSums reports that a denominator of the mechanism is a sum of weights, of which A, whose rows sum to
	// one, knows nothing.
	ownSums bool
}

// numbers maps names of parameters and constants to their elements.
type numbers map[string][]float64

// described is a subject that an engine computes.
type described struct {
	label, name string
	o           Options
	book        oracle.Mechanism
}

func subjects() []subject {
	set := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	list := []described{
		{"softmax", "softmax", Options{}, oracle.Mechanism{Exp: true}},
		{"softmax scale=2", "softmax", Options{Set: set("scale", "2")}, oracle.Mechanism{Exp: true, Scale: 2}},
		{"taylorshift", "taylorshift", Options{}, oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Tau: []float64{}, Coef: oracle.TaylorCoef(2)}},
		{"taylorshift p=4", "taylorshift", Options{Order: 4}, oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Tau: []float64{}, Coef: oracle.TaylorCoef(4)}},
		{"taylorshift output_norm", "taylorshift", Options{Set: set("output_norm", "true")}, oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Tau: []float64{}, Coef: oracle.TaylorCoef(2), OutputNorm: true}},
		{"linear", "linear", Options{}, oracle.Mechanism{Scale: 1, Map: oracle.EluPlusOne, Coef: []float64{0, 1}, Eps: 1e-6}},
		{"linear eps=0.5", "linear", Options{Set: set("eps", "0.5")}, oracle.Mechanism{Scale: 1, Map: oracle.EluPlusOne, Coef: []float64{0, 1}, Eps: 0.5}},
		{"linear map=relu", "linear", Options{Set: set("map", "relu")}, oracle.Mechanism{Scale: 1, Map: oracle.ReLU, Coef: []float64{0, 1}, Eps: 1e-6}},
		{"linear map=squared-relu eps=0", "linear", Options{Set: set("map", "squared-relu", "eps", "0")}, oracle.Mechanism{Scale: 1, Map: oracle.SquaredReLU, Coef: []float64{0, 1}}},
		{"based", "based", Options{}, oracle.Mechanism{Coef: oracle.TaylorCoef(2)}},
		{"based eps=0.5", "based", Options{Set: set("eps", "0.5")}, oracle.Mechanism{Coef: oracle.TaylorCoef(2), Eps: 0.5}},
		{"power eps=0.25", "power", Options{Set: set("eps", "0.25")}, oracle.Mechanism{Coef: []float64{0, 0, 1}, Eps: 0.25}},
		{"power p=4 scale=1 eps=1", "power", Options{Order: 4, Set: set("scale", "1", "eps", "1")}, oracle.Mechanism{Scale: 1, Coef: []float64{0, 0, 0, 0, 1}, Eps: 1}},
		{"sata", "sata", Options{}, oracle.Mechanism{Coef: oracle.TaylorCoef(3)}},
		{"sata p=4", "sata", Options{Order: 4}, oracle.Mechanism{Coef: oracle.TaylorCoef(4)}},
		{"retention", "retention", Options{}, oracle.Mechanism{Coef: []float64{0, 1}, Unnormalized: true, Forget: retnet}},
		{"retention scale=1", "retention", Options{Set: set("scale", "1")}, oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}, Unnormalized: true, Forget: retnet}},
		{"fastmax p=2 1/sqrt(D)", "fastmax", Options{Set: set("scale", "1/sqrt(D)")}, oracle.Mechanism{Norm: oracle.Standard, Coef: oracle.TaylorCoef(2)}},
		{"fastmax p=2 tau", "fastmax", Options{Set: set("scale", "1/sqrt(D)", "tau", "1")}, oracle.Mechanism{Norm: oracle.Standard, Tau: []float64{}, Coef: oracle.TaylorCoef(2)}},
	}
	for _, s := range []struct {
		settings []string
		book     oracle.Mechanism
	}{
		{nil, oracle.Mechanism{Coef: oracle.TaylorCoef(2)}},
		{[]string{"coef", "0,0,1", "eps", "0.25"}, oracle.Mechanism{Coef: []float64{0, 0, 1}, Eps: 0.25}},
		{[]string{"norm", "bounded", "scale", "2", "coef", "0,0,0,0,1"}, oracle.Mechanism{Norm: oracle.Bounded, Scale: 2, Coef: []float64{0, 0, 0, 0, 1}}},
		{[]string{"norm", "unit", "tau", "1", "coef", "2,-1,0,1/4"}, oracle.Mechanism{Norm: oracle.Unit, Tau: []float64{}, Coef: []float64{2, -1, 0, 0.25}}},
		{[]string{"norm", "max", "scale", "4", "coef", "1,1.166666,0.145833"}, oracle.Mechanism{Norm: oracle.Max, Scale: 4, Coef: []float64{1, 1.166666, 0.145833}}},
		{[]string{"coef", "0,0,1", "eps", "1", "output_norm", "true"}, oracle.Mechanism{Coef: []float64{0, 0, 1}, Eps: 1, OutputNorm: true}},
		{[]string{"norm", "max", "output_norm", "true"}, oracle.Mechanism{Norm: oracle.Max, Coef: oracle.TaylorCoef(2), OutputNorm: true}},
		{[]string{"norm", "token-centred", "scale", "1", "tau", "1"}, oracle.Mechanism{Norm: oracle.TokenCentred, Scale: 1, Tau: []float64{}, Coef: oracle.TaylorCoef(2)}},
		{[]string{"norm", "channel-centred", "scale", "1", "coef", "1,1,1/2,1/6"}, oracle.Mechanism{Norm: oracle.ChannelCentred, Scale: 1, Coef: oracle.TaylorCoef(3)}},
		{[]string{"norm", "global-centred", "scale", "1"}, oracle.Mechanism{Norm: oracle.GlobalCentred, Scale: 1, Coef: oracle.TaylorCoef(2)}},
		{[]string{"norm", "max-squared", "scale", "1"}, oracle.Mechanism{Norm: oracle.MaxSquared, Scale: 1, Coef: oracle.TaylorCoef(2)}},
		{[]string{"norm", "standard", "coef", "3,0,0.5"}, oracle.Mechanism{Norm: oracle.Standard, Coef: []float64{3, 0, 0.5}}},
	} {
		list = append(list, described{"polynomial " + strings.Join(s.settings, " "), "polynomial", Options{Set: set(s.settings...)}, s.book})
	}
	for p := 1; p <= 5; p++ {
		list = append(list, described{fmt.Sprintf("fastmax p=%d", p), "fastmax", Options{Order: p},
			oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(p)}})
	}
	for p := 1; p <= 2; p++ {
		list = append(list, described{fmt.Sprintf("fastmax p=%d bounded", p), "fastmax", Options{Order: p, Set: set("bounded", "true")},
			oracle.Mechanism{Norm: oracle.Bounded, Scale: 1, Coef: oracle.TaylorCoef(p)}})
	}
	list = withWindows(list)
	var all []subject
	for _, x := range list {
		all = append(all, subject{label: x.label, name: x.name, o: x.o, book: x.book, aligned: x.book.Window != nil})
	}
	all = append(all, performers()...)
	all = append(all, hedgehogs()...)
	all = append(all, randomFeatures()...)
	return append(all, wholeSubjects()...)
}

// retnet is log γ_h (RetNet, eq. 8).
func retnet(h int) float64 { return math.Log(1 - math.Pow(2, float64(-5-h))) }

// windows are joined to some of the subjects.
var windows = []struct {
	of       string
	width    int
	separate bool
}{
	{"fastmax p=2", 1, false}, {"fastmax p=2", 4, false}, {"fastmax p=2", 200, false}, {"fastmax p=2", 4, true},
	{"fastmax p=2 tau", 5, false}, {"fastmax p=1", 6, false}, {"fastmax p=1", 2, true},
	{"taylorshift", 4, false}, {"taylorshift", 5, true}, {"taylorshift", 200, true},
	{"linear", 6, false}, {"linear", 1, true}, {"linear eps=0.5", 5, false},
	{"based", 64, true}, {"polynomial ", 64, false}, {"polynomial coef 0,0,1 eps 0.25", 2, false},
	{"polynomial coef 0,0,1 eps 0.25", 3, true}, {"power eps=0.25", 3, true}, {"sata", 4, true},
}

// withWindows returns list with those subjects before the first of fastmax.
func withWindows(list []described) []described {
	var more []described
	for _, x := range windows {
		s := list[slices.IndexFunc(list, func(s described) bool { return s.label == x.of })]
		join := "denominator"
		if x.separate {
			join = "separate"
		}
		s.o.Set = maps.Clone(s.o.Set)
		if s.o.Set == nil {
			s.o.Set = map[string]string{}
		}
		s.o.Set["window"], s.o.Set["join"] = strconv.Itoa(x.width), join
		s.label += fmt.Sprintf(" window %d %s", x.width, join)
		s.book.Window = &oracle.Window{Width: x.width, Separate: x.separate}
		more = append(more, s)
	}
	return slices.Insert(list, slices.IndexFunc(list, func(s described) bool { return s.label == "fastmax p=1" }), more...)
}

// causal reports that the subject's outputs may be kept from later tokens.
func (s *subject) causal() bool {
	if s.whole != nil {
		o := s.o
		o.Heads = 1
		m, err := New(s.name, o)
		return err == nil && m.Traits().Causal
	}
	return s.book.Norm < oracle.Max
}

// stepsUnmasked reports that reading a state is an unmasked call.
func (s *subject) stepsUnmasked() bool { return s.whole == nil && s.book.Window == nil }

// linear reports that the subject has a linear form.
func (s *subject) linear() bool { return s.whole == nil && !s.book.Exp }

// sums reports that rows of A sum to one.
func (s *subject) sums() bool {
	if s.whole != nil {
		return s.average
	}
	return s.book.Eps == 0 && !s.book.Unnormalized && s.book.Floor == 0
}

// fit removes from a shape the features that the subject lacks.
func (s *subject) fit(sh shape) shape {
	sh.causal = sh.causal && s.causal() || s.book.Forget != nil
	if sh.causal && sh.theta != 0 && sh.m < sh.n {
		sh.theta = 0
	}
	if !sh.causal || s.book.OutputNorm || s.book.Floor > 0 || s.whole != nil {
		sh.decay = 0
	}
	sh.keep = sh.keep && s.whole == nil
	if s.shared {
		sh.m = min(sh.m, sh.n)
		if sh.cuQ != nil {
			sh.m, sh.cuK = sh.n, sh.cuQ
		}
		sh.lens = slices.Clone(sh.lens)
		for b := range sh.lens {
			sh.lens[b] = min(sh.lens[b], int64(sh.m))
		}
	}
	if s.o.Width > 0 { // its parameters are of that width
		sh.d = s.o.Width
	}
	if s.outputs != nil { // projections have at most that number of channels
		sh.dv = min(sh.dv, sh.d)
	}
	return sh
}

// kinds are the rows of the table, without and with a window, that were met.
type kinds map[string]bool

// isNew adds the kind of a subject, and reports whether it was not met before.
func (k kinds) isNew(s subject) bool {
	key := s.name
	if s.book.Window != nil {
		key += " window"
	}
	met := k[key]
	k[key] = true
	return !met
}

func TestEveryRowIsASubject(t *testing.T) {
	have := map[string]bool{}
	for _, s := range subjects() {
		have[s.name] = true
	}
	for _, name := range Names() {
		if !have[name] {
			t.Errorf("%s: no law is tested on it", name)
		}
	}
}

// unset says why no subject needs to set a setting, by row and setting, or by the name of
// a setting that rows share.
var unset = map[string]string{
	"seed":                  "other numbers of the same distribution",
	"redraw":                "of training runs, which package train tests",
	"gamma":                 "what log_gamma starts from: build sets log_gamma",
	"taylorshift tau":       "what tau starts from: build sets tau; TestTemperaturesStartWhereTheyAreSet",
	"retention gamma":       "a number for each key head, and calls of laws differ in key heads: TestRetentionIsItsRecurrence",
	"adaptive-span penalty": "of the auxiliary loss: TestAdaptiveSpanHasALossOfItsOwn",
	"primal square":         "of the auxiliary loss: TestPrimalLossAndGradientAreTheTextbook",
	"primal loss":           "of the auxiliary loss: TestPrimalLossAndGradientAreTheTextbook",
	"primal trace":          "of the auxiliary loss: TestPrimalLossAndGradientAreTheTextbook",
}

// Each setting of a row has a subject with a value that is not the default, or a reason in
// unset.
func TestEverySettingHasASubject(t *testing.T) {
	have, used := map[string]bool{}, map[string]bool{}
	for _, row := range table {
		for _, set := range row.Settings {
			have[row.Name+" "+set.Name] = slices.ContainsFunc(subjects(), func(s subject) bool {
				value, given := s.o.Set[set.Name]
				return s.name == row.Name && given && value != set.Default
			})
		}
	}
	for _, row := range table {
		for _, set := range row.Settings {
			key := row.Name + " " + set.Name
			if have[key] {
				continue
			}
			if set == seedSetting || set == redrawSetting || set == gammaSetting {
				key = set.Name
			}
			used[key] = true
			if unset[key] == "" {
				t.Errorf("%s: no subject has a %s other than %s", row.Name, set.Name, set.Default)
			}
		}
	}
	for key := range unset {
		if !used[key] {
			t.Errorf("unset[%q]: a subject sets it, or there is no such setting", key)
		}
	}
}

// build returns the subject for h query heads, with temperatures that differ.
func build(t *testing.T, s subject, h int) (attention.Mechanism, *textbookOf) {
	t.Helper()
	s.o.Heads = h
	if s.features != nil {
		return drawnFeatures(s)
	}
	m, err := New(s.name, s.o)
	if err != nil {
		t.Fatal(err)
	}
	book := s.book
	if s.whole != nil {
		return m, wholeTextbook(s, m)
	}
	if book.Tau != nil {
		tau, err := m.Params().Get("tau")
		if err != nil {
			t.Fatal(err)
		}
		book.Tau = make([]float64, h)
		for i := range book.Tau {
			book.Tau[i] = 0.5 + 0.375*float64(i)
			tau.Data[i] = float(book.Tau[i])
		}
	}
	if book.Window != nil {
		window := *book.Window
		gamma, err := m.Params().Get("log_gamma")
		if err != nil {
			t.Fatal(err)
		}
		window.Gamma = make([]float64, h)
		for i := range window.Gamma {
			gamma.Data[i] = float(0.5*float64(i) - 0.75)
			window.Gamma[i] = math.Exp(float64(gamma.Data[i]))
		}
		book.Window = &window
	}
	return m, &textbookOf{Mechanism: &book}
}

// shape is a problem to be filled with random numbers.
type shape struct {
	name                   string
	b, h, hkv, n, m, d, dv int
	causal                 bool
	lens                   []int64
	mask, keep             bool // random, about three quarters kept
	cuQ, cuK               []int64
	theta                  float64
	decay                  float64 // log_g is 0 to -decay
}

var shapes = []shape{
	{name: "full", b: 2, h: 4, hkv: 2, n: 7, m: 5, d: 8, dv: 3},
	{name: "causal", b: 1, h: 2, hkv: 2, n: 13, m: 13, d: 3, dv: 5, causal: true},
	{name: "causal, more keys", b: 2, h: 3, hkv: 1, n: 5, m: 12, d: 8, dv: 8, causal: true},
	{name: "causal, more queries", b: 1, h: 2, hkv: 1, n: 9, m: 6, d: 3, dv: 2, causal: true},
	{name: "width 1", b: 1, h: 2, hkv: 1, n: 6, m: 6, d: 1, dv: 1, causal: true},
	{name: "width 17", b: 1, h: 1, hkv: 1, n: 11, m: 11, d: 17, dv: 4, causal: true},
	{name: "width 5, long", b: 1, h: 1, hkv: 1, n: 150, m: 150, d: 5, dv: 3, causal: true},
	{name: "key lengths", b: 3, h: 2, hkv: 1, n: 4, m: 9, d: 3, dv: 4, lens: []int64{5, 0, 9}},
	{name: "causal, key lengths", b: 3, h: 2, hkv: 2, n: 9, m: 9, d: 3, dv: 4, causal: true, lens: []int64{5, 0, 9}},
	{name: "key mask", b: 2, h: 2, hkv: 1, n: 6, m: 11, d: 3, dv: 4, mask: true},
	{name: "causal, key mask and lengths", b: 2, h: 2, hkv: 1, n: 11, m: 11, d: 3, dv: 4, causal: true, mask: true, lens: []int64{11, 7}},
	{name: "pairs", b: 2, h: 2, hkv: 1, n: 6, m: 9, d: 3, dv: 4, keep: true},
	{name: "causal pairs, key mask", b: 1, h: 2, hkv: 1, n: 9, m: 9, d: 3, dv: 4, causal: true, keep: true, mask: true},
	{name: "packed", b: 1, h: 2, hkv: 1, n: 9, m: 10, d: 3, dv: 4, cuQ: []int64{0, 2, 2, 9}, cuK: []int64{0, 5, 7, 10}},
	{name: "packed, causal, key mask", b: 1, h: 2, hkv: 1, n: 12, m: 12, d: 3, dv: 4, causal: true, mask: true,
		cuQ: []int64{0, 1, 5, 12}, cuK: []int64{0, 4, 8, 12}},
	{name: "rotated", b: 1, h: 2, hkv: 1, n: 7, m: 9, d: 6, dv: 4, theta: 100},
	{name: "rotated, causal, odd width", b: 2, h: 2, hkv: 1, n: 6, m: 9, d: 5, dv: 4, causal: true, theta: 100},
	{name: "causal, decay", b: 2, h: 4, hkv: 2, n: 13, m: 13, d: 3, dv: 5, causal: true, decay: 1},
	{name: "causal, fast decay, key mask and lengths", b: 2, h: 2, hkv: 1, n: 11, m: 11, d: 3, dv: 4, causal: true, mask: true, lens: []int64{11, 7}, decay: 40},
	{name: "causal pairs, decay", b: 1, h: 2, hkv: 1, n: 9, m: 9, d: 3, dv: 4, causal: true, keep: true, decay: 3},
	{name: "packed, causal, decay", b: 1, h: 2, hkv: 1, n: 12, m: 12, d: 3, dv: 4, causal: true, cuQ: []int64{0, 1, 5, 12}, cuK: []int64{0, 4, 8, 12}, decay: 1},
	{name: "rotated, causal, slow decay, long", b: 1, h: 2, hkv: 1, n: 110, m: 150, d: 5, dv: 3, causal: true, theta: 100, decay: 0.02},
	{name: "no keys", b: 1, h: 2, hkv: 1, n: 3, m: 0, d: 3, dv: 4},
	{name: "no queries", b: 1, h: 2, hkv: 1, n: 0, m: 3, d: 3, dv: 4},
}

// shapesOf returns the shapes for a subject. Without -long, mechanisms that compute whole heads have no
// more queries and keys than exceed a tile, because their textbook is slow.
func shapesOf(s subject) []shape {
	list := slices.Clone(shapes)
	for i := range list {
		if sh := &list[i]; s.whole != nil && sh.m > 132 && !suite.IsLong() {
			sh.n, sh.m = 70, 132
		}
	}
	return list
}

// heads returns standard normal numbers that float32 holds exactly.
func heads(k rng.Key, b, h, n, d int) oracle.Heads {
	x := oracle.NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float64(float32(k.Normal(uint64(i))))
	}
	return x
}

// call returns a random call of a shape, and the gradient of its output.
func (s shape) call(seed uint64) (*oracle.Call, oracle.Heads) {
	k := rng.New(seed)
	c := &oracle.Call{
		Q:      heads(k.Fold(1), s.b, s.h, s.n, s.d),
		K:      heads(k.Fold(2), s.b, s.hkv, s.m, s.d),
		V:      heads(k.Fold(3), s.b, s.hkv, s.m, s.dv),
		Causal: s.causal, KeyLens: s.lens, CuQ: s.cuQ, CuK: s.cuK, Theta: s.theta,
	}
	kept := func(k rng.Key, n int) []bool {
		list := make([]bool, n)
		for i := range list {
			list[i] = k.Intn(uint64(i), 4) > 0
		}
		return list
	}
	if s.mask {
		c.KeyMask = kept(k.Fold(4), s.b*s.m)
	}
	if s.keep {
		c.AttnKeep = kept(k.Fold(5), s.n*s.m)
	}
	if s.decay > 0 {
		c.LogG = oracle.NewHeads(s.b, s.hkv, s.m, 1)
		for i := range c.LogG.Data {
			c.LogG.Data[i] = float64(float32(-s.decay * k.Fold(7).Float64(uint64(i))))
		}
	}
	return c, heads(k.Fold(6), s.b, s.h, s.n, s.dv)
}

func in(x oracle.Heads) tensor.Heads {
	y := tensor.NewHeads(x.B, x.H, x.N, x.D)
	for i := range y.Data {
		y.Data[i] = float(x.Data[i])
	}
	return y
}

func callIn(c *oracle.Call) *attention.Call {
	a := &attention.Call{
		Q: in(c.Q), K: in(c.K), V: in(c.V), Causal: c.Causal,
		KeyLens: c.KeyLens, KeyMask: c.KeyMask, AttnKeep: c.AttnKeep, CuQ: c.CuQ, CuK: c.CuK,
	}
	if c.LogG.D > 0 {
		a.LogG = in(c.LogG)
	}
	if c.Theta != 0 {
		a.Rope = attention.NewRope(c.K.D, c.Theta, 0, max(c.Q.N, c.K.N))
	}
	return a
}

// poisoned returns heads full of NaN, which expose elements that are not written.
func poisoned(b, h, n, d int) tensor.Heads {
	x := tensor.NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float(math.NaN())
	}
	return x
}

// results is everything that a call gives.
type results struct {
	o    tensor.Heads
	g    attention.Grads
	tau  []float // gradients of the parameters
	keep attention.Saved
}

func forward(t *testing.T, m attention.Mechanism, c *attention.Call) *results {
	t.Helper()
	r := &results{o: poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)}
	keep := &r.keep
	if c.Form == attention.Step {
		keep = nil
	}
	if err := m.Forward(r.o, c, keep); err != nil {
		t.Fatal(err)
	}
	return r
}

func both(t *testing.T, m attention.Mechanism, c *attention.Call, do tensor.Heads) *results {
	t.Helper()
	r := forward(t, m, c)
	r.g = attention.Grads{
		DQ: poisoned(c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK: poisoned(c.K.B, c.K.H, c.K.N, c.K.D),
		DV: poisoned(c.V.B, c.V.H, c.V.N, c.V.D),
	}
	if c.LogG.D > 0 {
		r.g.DLogG = poisoned(c.K.B, c.K.H, c.K.N, 1)
	}
	m.Params().ZeroGrad()
	if err := m.Backward(&r.g, do, r.o, c, &r.keep); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() {
		r.tau = append(r.tau, p.Grad...)
	}
	return r
}

// form is a way to compute, with its tokens per chunk.
type form struct {
	form  attention.Form
	chunk int
}

func (f form) String() string {
	if f.chunk > 0 {
		return fmt.Sprintf("%v chunk %d", f.form, f.chunk)
	}
	return f.form.String()
}

// everyForm is a form of each kind, and several sizes of chunks.
var everyForm = []form{{attention.Direct, 0}, {attention.Auto, 0}, {attention.Step, 0},
	{attention.Linear, 0}, {attention.Linear, 1}, {attention.Linear, 3}, {attention.Linear, 8}}

// computes reports whether a subject has form f for a call.
func (f form) computes(s subject, c *oracle.Call) bool {
	switch f.form {
	case attention.Step:
		return c.AttnKeep == nil && s.causal() && (c.Causal || s.stepsUnmasked())
	case attention.Linear:
		return c.AttnKeep == nil && s.linear()
	}
	return true
}

// limits returns the error limits of a form of a call.
func limits(s subject, m attention.Mechanism, c *attention.Call) check.Limits {
	switch {
	case s.whole != nil:
		return wholeLimits(m, c)
	case s.book.Exp:
		return check.SoftmaxLimits[float]()
	case c.Form == attention.Direct || c.AttnKeep != nil:
		return check.DirectLimits[float](len(s.book.Coef) - 1)
	}
	sh := c.Shape()
	sh.Form = attention.Linear
	p := m.Plan(sh)
	if s.book.Norm == oracle.Max {
		// Products of rows that are short beside the longest one are below half a
		// unit of a sum that the constant dominates. They are lost one after
		// another, all with their sign, and do not wander by √F.
		return check.LinearLimits[float](p.F*p.F, min(p.Chunk, c.K.N))
	}
	return check.LinearLimits[float](p.F, min(p.Chunk, c.K.N))
}

func TestFormsAgreeOverRandomShapes(t *testing.T) {
	if !suite.IsLong() {
		t.Skip("runs with -long")
	}
	for _, s := range subjects() {
		t.Run(s.label, func(t *testing.T) {
			var worst float64
			for seed := range uint64(60) {
				worst = max(worst, agreeAs(t, s, randomShape(seed), 1000+seed, everyForm))
			}
			t.Logf("the largest error is %.2f limits", worst)
		})
	}
}

func randomShape(seed uint64) shape {
	k := rng.New(seed).Fold(9)
	pick := func(i uint64, n int) int { return k.Intn(i, n) }
	sh := shape{
		name: fmt.Sprintf("random %d", seed),
		b:    1 + pick(0, 3), hkv: 1 + pick(1, 2), n: 1 + pick(2, 40), m: 1 + pick(3, 40), d: 1 + pick(4, 12), dv: 1 + pick(5, 9),
		causal: pick(6, 2) == 0, mask: pick(7, 3) == 0,
	}
	sh.h = sh.hkv * (1 + pick(8, 3))
	if sh.d == 2 { // rows are ±(1,-1) then, and for p = 1 denominators are exactly 0
		sh.d = 13
	}
	if pick(9, 3) == 0 {
		for b := range sh.b {
			sh.lens = append(sh.lens, int64(pick(10+uint64(b), sh.m+1)))
		}
	}
	if !sh.causal || sh.m >= sh.n {
		sh.theta = float64(pick(20, 2)) * 50
	}
	return sh
}

// precision is the name of the element type.
var precision = check.Precision

// agreeAs is agree as a test that the precision names.
func agreeAs(t *testing.T, s subject, sh shape, seed uint64, list []form) (worst float64) {
	t.Run(sh.name+"/"+precision, func(t *testing.T) { worst = agree(t, s, sh, seed, list) })
	return worst
}

// textbook holds the answers of the textbooks.
var textbook sync.Map

// answer returns what the textbook of s says of a call, which compute asks it. Laws
// that want to know the same get the same.
func answer[A any](what string, s subject, sh shape, seed uint64, compute func() A) A {
	key := fmt.Sprint(what, "/", s.label, "/", sh.name, "/", seed)
	if a, found := textbook.Load(key); found {
		return a.(A)
	}
	a := compute()
	textbook.Store(key, a)
	return a
}

// answers is what the textbook says of outputs, and of all that they are made of.
func (b *textbookOf) answers(s subject, sh shape, seed uint64, oc *oracle.Call) *oracle.Result {
	return answer("outputs", s, sh, seed, func() *oracle.Result { return b.Forward(oc) })
}

// parameters are the gradients of all parameters, one after another.
func parameters(g *oracle.Grads) []float64 { return slices.Concat(g.DTau, g.DFeatures, g.DLogGamma) }

// crowd is by how much the limit of a key's gradient grows with the queries of
// each key. Keys share the weights of all queries that see them: what they get
// from each may cancel, its roundings are independent.
func crowd(sh shape) float64 {
	return math.Sqrt(max(1, float64(sh.n*sh.h)/float64(max(sh.hkv*sh.m, 1))))
}

// agree holds forms of a call, outputs, denominators and gradients, against the
// textbook. It returns the largest error in units of its limit.
func agree(t *testing.T, s subject, sh shape, seed uint64, list []form) (worst float64) {
	if s.whole != nil {
		return agreeWhole(t, s, sh, seed, list)
	}
	sh = s.fit(sh)
	oc, do := sh.call(seed)
	m, book := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	want := book.answers(s, sh, seed, oc)
	grads := answer("gradients", s, sh, seed, func() *oracle.Grads { return book.Backward(oc, do) })
	cond, v := max(1, check.MaxAbs(want.Cond)), check.MaxAbs(oc.V.Data)
	most := max(1, check.MaxAbs(want.Factor))
	for _, f := range list {
		if !f.computes(s, oc) {
			continue
		}
		c.Form, c.Chunk = f.form, f.chunk
		l := limits(s, m, c)
		var got *results
		if f.form == attention.Step {
			got = forward(t, m, c)
		} else {
			got = both(t, m, c, doT)
		}
		hold := func(name string, err float64) {
			worst = max(worst, err)
			if err > allowance {
				t.Errorf("%v: %s is off by %.3g limits", f, name, err)
			}
		}
		var o, den float64
		for i, x := range want.Cond {
			ref := want.O.Data[i*sh.dv:][:sh.dv]
			o = max(o, check.ErrorRatio(got.o.Data[i*sh.dv:][:sh.dv], ref, l.Output(x, want.Factor[i]*v+check.MaxAbs(ref))))
		}
		hold("o", o)
		if f.form == attention.Step {
			continue
		}
		for i, x := range want.Cond {
			if x > 0 { // the denominator of an unseen row is not specified
				size := 1 + math.Abs(want.Den[i])
				if book.Unnormalized {
					size *= 1 + math.Log(size) // the power of an exponential, whose rounding is in parts of itself
				}
				den = max(den, check.ErrorRatio(got.keep.Den[i:][:1], want.Den[i:][:1], l.Sum(sh.m, x*size)))
			}
		}
		hold("the denominator", den)
		if got.keep.UnseenCount != int64(want.QueriesWithoutKeys) {
			t.Errorf("%v: %d queries see no key, want %d", f, got.keep.UnseenCount, want.QueriesWithoutKeys)
		}
		if check.UnitRoundoff[float]() == 0x1p-24 && (got.keep.WeakCount > 0 || l.Output(cond, 1) > 1./8) {
			// A gradient divides by the denominator twice: in a weak row, and in
			// one whose denominator may be off by a good part of itself, float32
			// has no digits to promise.
			continue
		}
		queries, keys := book.Lengths(oc)
		for _, x := range []struct {
			name    string
			got     []float
			want    []float64
			lengths []float64 // by which the rows are divided that it is the gradient of
			sum     float64   // terms that cancel in it
		}{
			{"dq", got.g.DQ.Data, grads.DQ.Data, queries, 1},
			{"dk", got.g.DK.Data, grads.DK.Data, keys, crowd(sh)},
			{"dv", got.g.DV.Data, grads.DV.Data, nil, 1},
			{"parameters", got.tau, parameters(grads), nil, float64(sh.n * sh.b)},
			{"dlog_g", got.g.DLogG.Data, grads.DLogG.Data, nil, float64(sh.n)},
		} {
			size := max(check.MaxAbs(x.want), check.MaxAbs(do.Data)*v*most)
			limit := l.Gradient(cond, size) * x.sum
			if sh.d == 1 && x.lengths != nil {
				// The direction of a number is its sign, and so is a difference of
				// two that is divided by its length. The gradient is 0 then: terms
				// that cancel, divided by that length.
				var err float64
				for i, length := range x.lengths {
					err = max(err, check.ErrorRatio(x.got[i:][:1], x.want[i:][:1], limit/min(1, length)))
				}
				hold(x.name, err)
				continue
			}
			hold(x.name, check.ErrorRatio(x.got, x.want, limit))
		}
	}
	return worst
}
