package mechanism

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Options chooses among what a mechanism offers. The zero value is its default.
type Options struct {
	Order int // degree p of the polynomial; 0: the mechanism's default
	Heads int // query heads, for parameters of each head; 0: one for all heads
	// Width is D, where a setting is given as a function of it, and for parameters
	// of that width; 0: not known, these are 64 wide.
	Width int
	// Length is the largest number of tokens of a sequence, for parameters of each
	// token; 0: the mechanism's own.
	Length int
	// Seed makes what is drawn differ, beside the setting seed, such as from layer
	// to layer.
	Seed uint64
	Set  map[string]string
}

// Row is a mechanism of the catalogue.
type Row struct {
	Name, Doc string
	Source    string // where it is defined
	Traits    string
	Linear    bool // the cost grows in proportion to the tokens, in a linear form, as a whole or with a window of fixed size
	Order     int  // default degree; 0: the mechanism has no order
	Settings  []Setting
	Params    []Param
	Constants []Param // drawn numbers, by their names in Constants

	// Training returns settings for training at an order, where a run leaves them open;
	// nil: the defaults.
	Training func(order int) map[string]string

	// fit sets what options do not say to what arrays of those shapes need; nil:
	// there is nothing to set.
	fit func(o *Options, shapes map[string][]int)

	f32 builder[float32]
	f64 builder[float64]
}

// MaxGrowth is the most by which planned operations of a linear row may grow for
// twice the tokens, from 4096 to 8192 of one head. Costs that do not depend on the
// tokens make it less than 2, edges of windows more.
const MaxGrowth = 2.1

// builder makes a mechanism from the settings of its row.
type builder[T tensor.Float] func(*reader) (attention.Mechanism[T], error)

// specBuilder is the builder of what package attention's engine computes.
func specBuilder[T tensor.Float](f func(*reader) (attention.Spec[T], error)) builder[T] {
	return func(r *reader) (attention.Mechanism[T], error) {
		s, err := f(r)
		if err != nil {
			return nil, err
		}
		return attention.New(s)
	}
}

// headwiseBuilder is the builder of what computes whole heads.
func headwiseBuilder[T tensor.Float](f func(*reader) (attention.Headwise[T], error)) builder[T] {
	return func(r *reader) (attention.Mechanism[T], error) {
		h, err := f(r)
		if err != nil {
			return nil, err
		}
		return attention.NewHeadwise(h), nil
	}
}

// Setting is a key that Options.Set may hold.
type Setting struct{ Name, Default, Doc string }

// Param is a learned parameter, or a constant, by its name and with its shape in
// letters: H heads, D and Dv widths, L the largest number of tokens, and settings.
type Param struct{ Name, Shape, Doc string }

var table = []Row{
	softmax,
	fastmax,
	taylorshift,
	linear,
	performer,
	rfa,
	based,
	power,
	sata,
	retention,
	polynomial,
	truncated,
	linformer,
	fourier,
	local,
	longformer,
	longnet,
	sparseStrided,
	sparseFixed,
	adaptiveSpan,
	transformerXL,
	nystrom,
	informer,
	luna,
	eva,
	clustered,
	improvedClustered,
	reformer,
	scatterbrain,
	exactTopK,
	primal,
}

// Names returns the names of the catalogue in its order.
func Names() []string {
	names := make([]string, len(table))
	for i, r := range table {
		names[i] = r.Name
	}
	return names
}

// Lookup returns the row of that name. The error for a name that is not there
// lists those that are near it, or all.
func Lookup(name string) (Row, error) {
	for _, r := range table {
		if r.Name == name {
			return r, nil
		}
	}
	if near := nearestNames(name, Names()); len(near) > 0 {
		return Row{}, fmt.Errorf("mechanism %q: unknown; nearest: %s", name, strings.Join(near, ", "))
	}
	return Row{}, fmt.Errorf("mechanism %q: unknown; there are: %s", name, strings.Join(Names(), ", "))
}

// FitOptions returns o with what it does not say set to what parameters and constants of
// those shapes need, which stand under their names: the number of tokens that a
// projection has rows for, or one number for all heads.
func (r Row) FitOptions(o Options, shapes map[string][]int) Options {
	o.Set = maps.Clone(o.Set)
	if o.Set == nil {
		o.Set = map[string]string{}
	}
	for _, p := range r.Params {
		if shape, given := shapes[p.Name]; given && p.Shape == "(H)" && tensor.Size(shape...) == 1 {
			o.Heads = 1
		}
	}
	if r.fit != nil {
		r.fit(&o, shapes)
	}
	return o
}

// setDefault sets a setting that is not set.
func (o *Options) setDefault(name, value string) {
	if _, given := o.Set[name]; !given {
		o.Set[name] = value
	}
}

// New returns the mechanism of that name.
func New[T tensor.Float](name string, o Options) (attention.Mechanism[T], error) {
	row, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	r := &reader{row: &row, o: &o}
	if err := r.check(); err != nil {
		return nil, err
	}
	build, single := any(row.f32).(builder[T])
	if !single {
		build = any(row.f64).(builder[T])
	}
	return build(r)
}

// maxOrder is the highest degree p with 1/p! within the normal float32.
const maxOrder = 33

// reader reads a row's settings out of Options.
type reader struct {
	row *Row
	o   *Options
}

// check refuses what the row does not have.
func (r *reader) check() error {
	if r.o.Order != 0 && r.row.Order == 0 {
		return fmt.Errorf("%s: order %d: it has no order", r.row.Name, r.o.Order)
	}
	if r.o.Order < 0 || r.o.Order > maxOrder {
		return fmt.Errorf("%s: order %d: needs to be 1 to %d", r.row.Name, r.o.Order, maxOrder)
	}
	if r.o.Heads < 0 || r.o.Width < 0 || r.o.Length < 0 {
		return fmt.Errorf("%s: %d heads of width %d for %d tokens: not possible", r.row.Name, r.o.Heads, r.o.Width, r.o.Length)
	}
	var names []string
	for _, s := range r.row.Settings {
		names = append(names, s.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(r.o.Set)) {
		if !slices.Contains(names, key) {
			return fmt.Errorf("%s: setting %s=%s: unknown; allowed: %s", r.row.Name, key, r.o.Set[key], strings.Join(names, ", "))
		}
	}
	return nil
}

// width is that of parameters.
func (r *reader) width() int {
	if r.o.Width == 0 {
		return 64
	}
	return r.o.Width
}

func (r *reader) order() int {
	if r.o.Order != 0 {
		return r.o.Order
	}
	return r.row.Order
}

// maxNumbers is how many elements an array of a mechanism's own may have. A
// configuration may be anybody's, and its arrays are there before any file has been
// looked at that would have them.
const maxNumbers = 1 << 24

// room reports an array that is larger than that.
func (r *reader) room(name string, shape ...int) error {
	n := 1.0
	for _, size := range shape {
		n *= float64(size)
	}
	if n > maxNumbers {
		return fmt.Errorf("%s: %s of shape %v has %.0f elements, at most %d are possible", r.row.Name, name, shape, n, maxNumbers)
	}
	return nil
}

// value returns the text of a setting.
func (r *reader) value(name string) string {
	if v, given := r.o.Set[name]; given {
		return v
	}
	for _, s := range r.row.Settings {
		if s.Name == name {
			return s.Default
		}
	}
	panic("mechanism: a setting that its row does not list")
}

func (r *reader) refuse(name, allowed string) error {
	return fmt.Errorf("%s: setting %s=%s: needs %s", r.row.Name, name, r.value(name), allowed)
}

// positive returns a finite number above 0, or 0 where the text is word, unless
// that is "".
func (r *reader) positive(name, word string) (float64, error) {
	text, allowed := r.value(name), "a number above 0 and at most 1e30"
	if word != "" {
		if text == word {
			return 0, nil
		}
		allowed += ", or " + word
	}
	x, err := strconv.ParseFloat(text, 64)
	if err == nil && x > 0 && x <= 1e30 {
		return x, nil
	}
	return 0, r.refuse(name, allowed)
}

// whole returns an integer between lo and hi.
func (r *reader) whole(name string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(r.value(name))
	if err != nil || n < lo || n > hi {
		return 0, r.refuse(name, fmt.Sprintf("a whole number from %d to %d", lo, hi))
	}
	return n, nil
}

// choice returns the text of a setting, which is one of names.
func (r *reader) choice(name string, names ...string) (string, error) {
	if text := r.value(name); slices.Contains(names, text) {
		return text, nil
	}
	return "", r.refuse(name, "one of "+strings.Join(names, ", "))
}

// seedSetting is the setting of rows that draw numbers.
var seedSetting = Setting{"seed", "0", "of the numbers drawn, a whole number from 0 to 2^64-1"}

// key returns what numbers are drawn by: the setting seed, and Options.Seed.
func (r *reader) key() (rng.Key, error) {
	n, err := strconv.ParseUint(r.value(seedSetting.Name), 10, 64)
	if err != nil {
		return rng.Key{}, r.refuse(seedSetting.Name, "a whole number from 0 to 2^64-1")
	}
	return rng.New(n).Fold(r.o.Seed), nil
}

// redrawSetting is the setting of rows that may draw their constants anew.
var redrawSetting = Setting{"redraw", "0", "updates of a training run after which numbers are drawn anew, such as 1000; 0: they stay"}

func (r *reader) redraws() (int, error) { return r.whole(redrawSetting.Name, 0, maxSettingTokens) }

// RedrawInterval returns the number of updates after which a training run draws the
// constants of the mechanism of that name anew: 0 for never.
func RedrawInterval(name string, o Options) (int, error) {
	row, err := Lookup(name)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(row.Settings, redrawSetting) {
		return 0, nil
	}
	return (&reader{row: &row, o: &o}).redraws()
}

func (r *reader) boolean(name string) (bool, error) {
	switch r.value(name) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, r.refuse(name, "true or false")
}
