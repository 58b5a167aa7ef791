package flags

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/model"
)

// Exchange holds the flags that put another attention function into the layers of a trained model.
// The tag brief keeps the list of mechanisms out of the help of their verbs.
type Exchange struct {
	Mechanism string `complete:"mechanisms" brief:"" placeholder:"NAME" help:"Attention function in place of the model's own; attend --help lists all."`
	Settings
	Layers string `placeholder:"L,..." help:"Layers that get it: all, or as 0,2-5 (those without a window)."`
}

// Request returns the exchange that the flags ask for, or nil if none. It returns an error if flags
// are given without --mechanism or are malformed, or if the mechanism is unknown.
func (x *Exchange) Request() (*model.Exchange, error) {
	if x.Mechanism == "" {
		return nil, RefuseFlags("needs --mechanism", Presence{"--order", x.Order != nil}, Presence{"--set", len(x.Set) > 0}, Presence{"--layers", x.Layers != ""})
	}
	if _, err := LookupFunction(x.Mechanism); err != nil {
		return nil, env.InputErrorf("--mechanism: %w", err)
	}
	o, err := x.Options(x.Mechanism, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	y := &model.Exchange{Mechanism: x.Mechanism, Order: o.Order, Set: x.Set, AllLayers: x.Layers == "all"}
	if x.Layers != "" && !y.AllLayers {
		if y.Layers, err = ParseNumbers(x.Layers); err != nil {
			return nil, env.InputErrorf("--layers: %w", err)
		}
	}
	return y, nil
}

// Bind calls bind with the name and value of each flag that is given, for outputs that a later call
// completes.
func (x *Exchange) Bind(bind func(name, value string)) {
	if x.Mechanism == "" {
		return
	}
	bind("--mechanism", x.Mechanism)
	if x.Order != nil {
		bind("--order", strconv.Itoa(*x.Order))
	}
	for _, key := range slices.Sorted(maps.Keys(x.Set)) {
		bind("--set "+key, x.Set[key])
	}
	if x.Layers != "" {
		bind("--layers", x.Layers)
	}
}

// maxLayer bounds the number of a layer of --layers.
const maxLayer = 1 << 16

// ParseNumbers parses a list of numbers and ranges, such as 0,2-5, of layers or heads. It returns
// an error for anything else.
func ParseNumbers(list string) ([]int, error) {
	layers := []int{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.ParseUint(first, 10, 64)
		to, errTo := strconv.ParseUint(last, 10, 64)
		if errFrom != nil || errTo != nil || from > to {
			return nil, fmt.Errorf("%q is neither a number, counted from 0, nor a range as 2-5", part)
		}
		if to > maxLayer || len(layers) > maxLayer {
			return nil, fmt.Errorf("%q: numbers above %d are not possible", part, maxLayer)
		}
		for i := from; i <= to; i++ {
			layers = append(layers, int(i))
		}
	}
	return layers, nil
}
