package mechanism

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/settings"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// Options holds the order, sizes and settings of a mechanism. The zero value is its default.
type Options struct {
	// Order is the degree p of the polynomial, at most 33 or the row's MaxOrder; 0: the
	// mechanism's default, which is degree 0 for a row with a MaxOrder.
	Order int
	Heads int // query heads, for parameters of each head; 0: one for all heads
	// KeyHeads is the number of key heads, for constants of each; 0: as many as Heads.
	KeyHeads int
	// Width is D, for settings that are functions of D and for parameters of width D;
	// 0: unknown, and parameters have width 64.
	Width int
	// Length is the largest number of tokens of a sequence, for parameters with rows
	// for tokens; 0: the default of the mechanism.
	Length int
	// Seed varies the random numbers in addition to the setting seed, for example
	// between layers.
	Seed uint64
	// Set holds settings by name, such as "scale": "1/sqrt(D)". The package comment lists them,
	// Row.Settings describes them.
	Set map[string]string
}

// Row describes a mechanism of the catalogue.
type Row struct {
	Name, Doc string
	Source    string // where it is defined
	Traits    string
	Linear    bool // the cost is linear in the tokens, in a linear form, for whole heads or with a window of fixed size
	Order     int  // default degree; 0: the mechanism has no order, or MaxOrder is above 0
	MaxOrder  int  // above 0: degrees 0 to MaxOrder are possible, and 0 is the default
	Settings  []Setting
	Params    []Param
	Constants []Param // random numbers, by their names in Mechanism.Constants
	// Untrained names the parameters or constants whose first values mean nothing before training: New
	// draws them, or sets them to numbers of no model. "": the first values define a function
	// that is useful by itself.
	Untrained string

	// FarField is the far field that training chooses beside a window if a run does not set
	// the degree. The zero value means Order in all layers. Encoders, and heads wider than
	// WidestHead, get Order instead of the degree of FarField.
	FarField FarField

	// Training returns the settings at an order that training uses if a run does not set
	// them. window is whether calls of the run can have a window. nil: the defaults.
	Training func(order int, window bool) map[string]string

	// fit sets unset options to match arrays of the given shapes; nil: there is
	// nothing to set.
	fit func(o *Options, shapes map[string][]int)

	build builder // makes the mechanism
}

// HasOrder reports whether the row has a degree.
func (r *Row) HasOrder() bool { return r.Order > 0 || r.MaxOrder > 0 }

// FarField describes the far field of a model's layers beside their windows.
type FarField struct {
	Order      int // degree
	Period     int // layers from one that has it to the next; the first has it
	WidestHead int // widest head that gets a far field
}

// builder makes a mechanism from the settings of its row.
type builder func(*reader) (attention.Mechanism, error)

// specBuilder returns the builder of a mechanism that the engine of package attention
// computes from a Spec.
func specBuilder(f func(*reader) (attention.Spec, error)) builder {
	return func(r *reader) (attention.Mechanism, error) {
		s, err := f(r)
		if err != nil {
			return nil, err
		}
		return factorised.New(s)
	}
}

// headwiseBuilder returns the builder of a mechanism that computes whole heads.
func headwiseBuilder(f func(*reader) (headwise.Function, error)) builder {
	return func(r *reader) (attention.Mechanism, error) {
		h, err := f(r)
		if err != nil {
			return nil, err
		}
		return headwise.New(h), nil
	}
}

// Setting is a key that Options.Set may hold. Doc says what it means.
type Setting struct{ Name, Default, Doc string }

// Param describes a learned parameter or a constant. Shape is in letters: H heads, D
// and Dv widths, L the largest number of tokens, and names of settings.
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
	multipole,
}

// Names returns the names of the mechanisms in the order of the catalogue.
func Names() []string {
	names := make([]string, len(table))
	for i, r := range table {
		names[i] = r.Name
	}
	return names
}

// Lookup returns the row named name. It returns an error for an unknown name, which
// lists up to three similar names, or all names if none is similar.
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

// FitOptions returns o with unset options taken from the shapes of stored arrays.
// shapes maps names of parameters and constants to their shapes. Options.Heads is 1 if
// a parameter of shape (H) has one element; rows read further options, such as Length
// and settings, from their own arrays. Settings in o.Set take precedence; o.Set is not
// changed.
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

// setDefault sets a setting that o.Set does not hold.
func (o *Options) setDefault(name, value string) {
	if _, given := o.Set[name]; !given {
		o.Set[name] = value
	}
}

// CheckOptions returns an error if the order, a size or the name of a setting in o does not suit
// the row. New checks the values of settings, too.
func (r *Row) CheckOptions(o Options) error { return newReader(r, &o).check() }

// New returns the mechanism named name. Options that are 0 and settings
// that o.Set does not hold have the defaults of the row.
//
// It returns an error, which names the field and its value, if the name is unknown; if
// o.Set holds a setting that the row does not list, or a value outside the documented
// range; if o.Order is not 0 for a row without an order, is negative, or is above 33 or the
// row's MaxOrder; if Heads, KeyHeads, Width or Length is negative; if the row needs a Width
// or Length that is 0; or if Heads, KeyHeads, Width or the elements of an array exceed 2²⁴.
//
// Numbers that Row.Untrained names are random, or those of no model, until they are trained or
// set: multipole's codebook, which Codebook makes from keys, is drawn from the setting seed, 0 by
// default, and Options.Seed. New returns such a mechanism, but farfield.Attend refuses it unless these
// numbers or the setting seed are given.
func New(name string, o Options) (attention.Mechanism, error) {
	row, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	r := newReader(&row, &o)
	if err := r.check(); err != nil {
		return nil, err
	}
	return row.build(r)
}

// maxOrder is the highest degree p with 1/p! within the normal float32.
const maxOrder = 33

// reader reads the settings of a row from Options.
type reader struct {
	*entry.Reader
	row *Row
	o   *Options
}

func newReader(row *Row, o *Options) *reader {
	return &reader{&entry.Reader{
		Reader: settings.NewReader(row.Name, row.Settings, o.Set),
		Name:   row.Name, Heads: o.Heads, KeyHeads: o.KeyHeads, Width: o.Width, Length: o.Length, Seed: o.Seed, Set: o.Set,
	}, row, o}
}

// check returns an error if the order, a size or the name of a setting does not suit
// the row.
func (r *reader) check() error {
	if r.o.Order != 0 && !r.row.HasOrder() {
		return fmt.Errorf("%s: order %d: it has no order", r.row.Name, r.o.Order)
	}
	if r.row.MaxOrder > 0 && (r.o.Order < 0 || r.o.Order > r.row.MaxOrder) {
		return fmt.Errorf("%s: order %d: needs to be 0 to %d", r.row.Name, r.o.Order, r.row.MaxOrder)
	}
	if r.o.Order < 0 || r.o.Order > maxOrder {
		return fmt.Errorf("%s: order %d: needs to be 1 to %d", r.row.Name, r.o.Order, maxOrder)
	}
	if r.o.Heads < 0 || r.o.Width < 0 || r.o.Length < 0 {
		return fmt.Errorf("%s: %d heads of width %d for %d tokens: not possible", r.row.Name, r.o.Heads, r.o.Width, r.o.Length)
	}
	if r.o.KeyHeads < 0 || r.o.KeyHeads > entry.MaxNumbers {
		return fmt.Errorf("%s: %d key heads, 0 to %d are possible", r.row.Name, r.o.KeyHeads, entry.MaxNumbers)
	}
	if r.o.Heads > entry.MaxNumbers || r.o.Width > entry.MaxNumbers { // an array of one number for each head or channel
		return fmt.Errorf("%s: %d heads of width %d, at most %d of each are possible", r.row.Name, r.o.Heads, r.o.Width, entry.MaxNumbers)
	}
	if degree, given := r.o.Set["order"]; given && r.row.HasOrder() {
		return fmt.Errorf("%s: setting order=%s: the degree is no setting, but Options.Order or --order %s", r.row.Name, degree, degree)
	}
	if name, found := r.FindUnknown(); found {
		return fmt.Errorf("%s: setting %s=%s: unknown; allowed: %s", r.row.Name, name, r.o.Set[name], strings.Join(r.Names(), ", "))
	}
	return nil
}

// order returns the degree p: Options.Order, or the default of the row if it is 0.
func (r *reader) order() int {
	if r.o.Order != 0 {
		return r.o.Order
	}
	return r.row.Order
}

// seedSetting is the setting of rows that draw random numbers.
var seedSetting = Setting{"seed", "0", "of the numbers drawn, a whole number from 0 to 2^64-1"}

// redrawSetting is the setting of rows that may redraw their constants in training.
var redrawSetting = Setting{"redraw", "0", "updates of a training run after which numbers are drawn anew, such as 1000; 0: they stay"}

// RedrawInterval returns the number of training updates after which the constants of
// the mechanism are drawn anew, 0 if they never are. It returns an error if the name is
// unknown, or if the setting redraw is not a whole number in its range.
func RedrawInterval(name string, o Options) (int, error) {
	row, err := Lookup(name)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(row.Settings, redrawSetting) {
		return 0, nil
	}
	return newReader(&row, &o).Redraws()
}
