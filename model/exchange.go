package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
)

// LayerMechanism is the mechanism of one layer. The zero value leaves the layer as it is.
type LayerMechanism struct {
	Mechanism string            `json:"mechanism,omitempty"` // a row of package mechanism
	Order     int               `json:"order,omitempty"`     // 0: the mechanism's default
	Set       map[string]string `json:"set,omitempty"`
}

// Exchange describes how layers of a trained model get another mechanism and keep their weights.
type Exchange struct {
	Mechanism string // a row of package mechanism
	Order     int    // 0: the mechanism's default
	Set       map[string]string
	// Layers lists the layers that get the mechanism. nil: every layer if AllLayers is set,
	// otherwise every layer without a window in LayerWindows.
	Layers    []int
	AllLayers bool
	// Factory builds a mechanism of your own, whose name is Mechanism. Its zero value means
	// that the mechanism is a row of package mechanism, or that its factory is in Config.Factories
	// or those of farfield.WithFactories.
	Factory Factory `json:"-"`
	// Numbers holds parameters and constants of the mechanism by their names in the model,
	// such as layers.0.attn.codebook. A mechanism whose first values mean nothing before
	// training (mechanism.Row.Untrained) needs them for each layer that gets it.
	Numbers map[string][]float32
}

// hasNumbers reports whether x has numbers for layer i.
func (x Exchange) hasNumbers(i int) bool {
	for name := range x.Numbers {
		if strings.HasPrefix(name, layerName(i)+".") {
			return true
		}
	}
	return false
}

// layerName returns the name of the self-attention of layer i.
func layerName(i int) string { return fmt.Sprintf("layers.%d.attn", i) }

// Exchanged returns a copy of c in which layers have the mechanism of x. If x does not set a scale,
// the scale of a layer's softmax becomes the setting scale of the mechanism. A layer that gets the
// mechanism and settings that it had before any exchange has no element in LayerMechanisms. A layer
// that has the mechanism already, with trained numbers, keeps the settings that x leaves out.
//
// Exchanged returns an error if a layer cannot have the mechanism, if the layer's scale is not 1/√D
// and the mechanism has no setting for it, or if the mechanism needs numbers
// (mechanism.Row.UntrainedWith) that neither the layer nor x.Numbers has. Its errors are a
// farfield.ErrInput.
func (c Config) Exchanged(x Exchange) (Config, error) {
	c, err := c.exchanged(x)
	return c, fault.Mark(fault.ErrInput, err)
}

// exchanged is Exchanged without the mark of its errors.
func (c Config) exchanged(x Exchange) (Config, error) {
	c = c.Clone()
	if x.Factory.build != nil {
		if c.Factories == nil {
			c.Factories = map[string]Factory{}
		}
		c.Factories[x.Mechanism] = x.Factory
	}
	row, err := x.row(c)
	if err != nil {
		return c, err
	}
	layers, err := x.layers(c)
	if err != nil {
		return c, err
	}
	plain := c // the layers before any exchange
	plain.LayerMechanisms = nil
	for _, i := range layers {
		name, o := plain.layerMechanism(i)
		to := LayerMechanism{x.Mechanism, x.Order, maps.Clone(x.Set)}
		now, has := c.layerMechanism(i)
		keeps := now == row.Name && row.UntrainedWith(has.Set) != ""
		if keeps && row.UntrainedWith(x.Set) != "" { // the numbers have the shapes of their settings
			to.Set = maps.Clone(has.Set)
			for key, value := range x.Set {
				if to.Set == nil {
					to.Set = map[string]string{}
				}
				to.Set[key] = value
			}
		}
		if name == "softmax" || name == "local" {
			if err := to.takeScale(row, o); err != nil {
				return c, fieldErrorf("{Exchange}: layer %d: %w", i, err)
			}
		}
		if to.Mechanism == name && to.Order == o.Order && maps.Equal(to.Set, o.Set) {
			if c.LayerMechanisms != nil {
				c.LayerMechanisms[i] = LayerMechanism{}
			}
			continue
		}
		if row.UntrainedWith(x.Set) != "" && !keeps && !x.hasNumbers(i) {
			return c, errUntrained(i, row)
		}
		if c.LayerMechanisms == nil {
			c.LayerMechanisms = make([]LayerMechanism, c.Layers)
		}
		c.LayerMechanisms[i] = to
	}
	if !c.hasLayerMechanisms() {
		c.LayerMechanisms = nil
	}
	if err := c.Validate(); err != nil {
		return c, fieldErrorf("{Exchange}: %w", err)
	}
	return c, nil
}

// errUntrained returns the error for a mechanism of layer i whose learned numbers are not given.
func errUntrained(i int, row mechanism.Row) error {
	inGo, inFile := fault.Texts(fieldErrorf("{Exchange}: layer %d: {Mechanism} %s has learned numbers (%s) that mean nothing before training, and the model does not have them", i, row.Name, row.Untrained))
	inGo += "; set Numbers"
	if row.Name != "multipole" {
		return fault.OfTexts(inGo+", or name another mechanism", fmt.Sprintf("%s; train a model with %s, or name another mechanism", inFile, row.Name))
	}
	return fault.OfTexts(inGo+", or centres=input in Set, which needs none; pretrained.WriteExchanged makes them from texts",
		inFile+"; farfield exchange makes them from texts, and --set centres=input needs none")
}

// row returns the row of the mechanism. It returns an error if there is none, or models like c
// have no mechanisms by layers.
func (x Exchange) row(c Config) (mechanism.Row, error) {
	if x.Mechanism == "" {
		return mechanism.Row{}, fieldErrorf("{Exchange}: {Mechanism}: is missing")
	}
	if _, owns := nn.LookupMixer(x.Mechanism); owns {
		return mechanism.Row{}, fieldErrorf("{Exchange}: {Mechanism}: %s owns its projections, and takes the place of no attention", x.Mechanism)
	}
	if _, owns := nn.LookupMixer(c.Mechanism); owns || c.Heads == 0 {
		return mechanism.Row{}, fieldErrorf("{Exchange}: {Mechanism}: %s, but the model has no attention whose function it could be: its mixer is %q", x.Mechanism, c.Mechanism)
	}
	row, err := lookupMechanism(c, x.Mechanism)
	if err != nil {
		inGo, inFile := fault.Texts(fieldErrorf("{Exchange}: %w", err))
		return row, fault.OfTexts(inGo+"; one of your own needs its Factory", inFile)
	}
	if err := c.takesLayerMechanisms(); err != nil {
		return row, fieldErrorf("{Exchange}: {Mechanism}: %s, but %w", x.Mechanism, err)
	}
	return row, nil
}

// layers returns the numbers of the layers of a model of configuration c, in ascending order.
func (x Exchange) layers(c Config) ([]int, error) {
	if x.Layers != nil {
		list := slices.Clone(x.Layers)
		slices.Sort(list)
		list = slices.Compact(list)
		for _, i := range list {
			if i < 0 || i >= c.Layers {
				return nil, fieldErrorf("{Exchange}: {Layers}: %d is given, the model has layers 0 to %d", i, c.Layers-1)
			}
		}
		return list, nil
	}
	var list []int
	for i := range c.Layers {
		if x.AllLayers || c.layerWindow(i) == 0 {
			list = append(list, i)
		}
	}
	if list == nil {
		return nil, fieldErrorf("{Exchange}: {Layers}: every layer of the model has a window already; name the layers")
	}
	return list, nil
}

// takeScale sets the settings scale and cap to those of a layer of softmax with the options o, unless
// x sets them or row has no setting cap. It returns an error if row has no setting scale and needs one.
func (x *LayerMechanism) takeScale(row mechanism.Row, o mechanism.Options) error {
	has := func(name string) func(mechanism.Setting) bool {
		return func(s mechanism.Setting) bool { return s.Name == name }
	}
	if limit, given := o.Set["cap"]; given && x.Set["cap"] == "" && slices.ContainsFunc(row.Settings, has("cap")) {
		if x.Set == nil {
			x.Set = map[string]string{}
		}
		x.Set["cap"] = limit
	}
	const byDefault = "1/sqrt(D)"
	from, given := o.Set["scale"]
	if !given {
		from = byDefault
	}
	if _, set := x.Set["scale"]; set {
		return nil
	}
	at := slices.IndexFunc(row.Settings, has("scale"))
	if at >= 0 {
		if from != row.Settings[at].Default {
			if x.Set == nil {
				x.Set = map[string]string{}
			}
			x.Set["scale"] = from
		}
		return nil
	}
	scale, err := strconv.ParseFloat(from, 64)
	if from == byDefault || err == nil && isInverseRoot(scale, o.Width) {
		return nil
	}
	return fmt.Errorf("its scores have the scale %s, and mechanism %s has no setting scale", from, row.Name)
}

// isInverseRoot reports whether a scale is 1/√d.
func isInverseRoot(scale float64, d int) bool {
	e := scale*scale*float64(d) - 1
	return e < 1e-6 && e > -1e-6
}

// Exchanged returns a model with the configuration of Config.Exchanged and copies of the weights of
// m. Compressed weights are shared. Constants that the mechanism draws come from fixed seeds. Where
// only settings of a mechanism change, its trained numbers are kept. Save and Load keep the model.
//
// Exchanged returns an error if Config.Exchanged or CheckMechanisms does, or if kept numbers have
// other shapes with the new settings.
func (m *Model) Exchanged(x Exchange) (*Model, error) {
	if err := m.CheckMechanisms(); err != nil {
		return nil, err
	}
	c, err := m.config.Exchanged(x)
	if err != nil {
		return nil, err
	}
	seeds, changed := map[string]uint64{}, map[string]bool{} // by names of layers
	for i := range m.layers {
		l := &m.layers[i]
		from, a := m.config.layerMechanism(l.number)
		to, b := c.layerMechanism(l.number)
		changed[l.name] = from != to || a.Order != b.Order || !maps.Equal(a.Set, b.Set)
		if seed, has := m.seeds[l.name]; has && !changed[l.name] {
			seeds[l.name] = seed
		}
	}
	y, err := newUndrawn(c, seeds)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{} // names of numbers that stay those of the new mechanism
	for i := range y.layers {
		l := &y.layers[i]
		if !changed[l.name] {
			continue
		}
		from, _ := m.config.layerMechanism(l.number)
		to, _ := c.layerMechanism(l.number)
		row, err := lookupMechanism(c, to)
		if err != nil {
			return nil, err
		}
		for _, p := range l.built.Params().All() {
			own[l.name+"."+p.Name] = from != to
		}
		for _, p := range l.built.Constants().All() {
			own[l.name+"."+p.Name] = from != to || p.Name != row.Untrained // drawn anew
		}
	}
	if err := y.Reserve(m.precision); err != nil {
		return nil, fieldErrorf("{Exchange}: %w", err)
	}
	for _, p := range y.storedParams() {
		if own[p.Name] {
			continue
		}
		from, err := m.params.Get(p.Name)
		if err != nil {
			if from, err = m.constants.Get(p.Name); err != nil {
				continue // a number of a mechanism that only the new settings have
			}
		}
		if !slices.Equal(from.Shape, p.Shape) {
			return nil, fieldErrorf("{Exchange}: %s: shape is %v, the new settings need %v", p.Name, from.Shape, p.Shape)
		}
		if w := m.compressed[p.Name]; w != nil {
			*y.compressed[p.Name] = *w // shared: it does not change any more
			continue
		}
		copy(p.Data, from.Data)
	}
	if err := y.SetNumbers(x.Numbers); err != nil {
		return nil, fieldErrorf("{Exchange}: %w", err)
	}
	return y, nil
}

// SetNumbers sets parameters and constants of the mechanisms of m by their names, such as
// layers.0.attn.codebook. If a name is unknown or a count of numbers does not fit, it returns an error
// and sets none.
func (m *Model) SetNumbers(numbers map[string][]float32) error {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		p := m.numbers(name)
		if p == nil {
			return fault.Mark(fault.ErrInput, fmt.Errorf("%s: the mechanisms of the model have no such numbers", name))
		}
		if len(p.Data) != len(numbers[name]) {
			return fault.Mark(fault.ErrInput, fmt.Errorf("%s: %d numbers are given, shape %v has %d", name, len(numbers[name]), p.Shape, len(p.Data)))
		}
	}
	for name, data := range numbers {
		p := m.numbers(name)
		for i, x := range data {
			p.Data[i] = float(x)
		}
	}
	return nil
}

// numbers returns a parameter or a constant of a layer's mechanism; nil: there is none.
func (m *Model) numbers(name string) *param.Param {
	for i := range m.layers {
		l := &m.layers[i]
		own, is := strings.CutPrefix(name, l.name+".")
		if !is {
			continue
		}
		for _, set := range []*param.Set{l.built.Params(), l.built.Constants()} {
			if p, err := set.Get(own); err == nil {
				return p
			}
		}
	}
	return nil
}

// hasLayerMechanisms reports whether a layer has a mechanism of LayerMechanisms.
func (c Config) hasLayerMechanisms() bool {
	return slices.ContainsFunc(c.LayerMechanisms, func(x LayerMechanism) bool { return x.Mechanism != "" || x.Order != 0 || len(x.Set) > 0 })
}

// checkLayerNames returns an error if layers cannot have the mechanisms of LayerMechanisms by
// their names.
func (c validation) checkLayerNames() error {
	if n := len(c.LayerMechanisms); n != 0 && n != c.Layers {
		return fieldErrorf("{LayerMechanisms}: has %d elements, {Layers} is %d", n, c.Layers)
	}
	if !c.hasLayerMechanisms() {
		return nil
	}
	if err := c.takesLayerMechanisms(); err != nil {
		return fieldErrorf("{LayerMechanisms}: are given, but %w", err)
	}
	for i, x := range c.LayerMechanisms {
		if x.Mechanism == "" {
			if x.Order != 0 || len(x.Set) > 0 {
				return fieldErrorf("{LayerMechanisms}: layer %d has {Order} %d and settings %v, but no mechanism", i, x.Order, x.Set)
			}
			continue
		}
		if _, owns := nn.LookupMixer(x.Mechanism); owns {
			return fieldErrorf("{LayerMechanisms}: layer %d: %s owns its projections; set {Mechanism} to an attention function such as softmax", i, x.Mechanism)
		}
		if _, err := lookupMechanism(c.Config, x.Mechanism); err != nil {
			return fieldErrorf("{LayerMechanisms}: layer %d: %w", i, err)
		}
	}
	return nil
}

// takesLayerMechanisms returns an error if models of the configuration have one mechanism for all
// layers.
func (c Config) takesLayerMechanisms() error {
	switch {
	case c.Kind == EncoderDecoder || c.Kind == Convolutional:
		return fieldErrorf("{Kind} is %s; only kinds %s and %s have mechanisms by layers", c.Kind, Decoder, Encoder)
	case c.RelativeBuckets != 0:
		return fieldErrorf("{RelativeBuckets} is %d, and only softmax has a bias by distance", c.RelativeBuckets)
	}
	return nil
}

// checkLayerMechanisms returns an error if a mechanism of LayerMechanisms refuses its options or
// does not support a field.
func (c validation) checkLayerMechanisms() error {
	if !c.hasLayerMechanisms() {
		return nil
	}
	for _, g := range c.layerGroups() {
		m, _, err := bareMixer(c.Config, c.IsCausal(), g.first)
		if err == nil {
			own := c
			own.Mechanism, _ = c.layerMechanism(g.first)
			err = own.checkTraits(m.Traits())
		}
		if err != nil {
			return fieldErrorf("{LayerMechanisms}: layer %d: %w", g.first, err)
		}
	}
	return nil
}

// layerGroup counts the layers that share one mechanism other than Config.Mechanism.
type layerGroup struct{ first, count int }

// layerGroups returns the groups of layers whose mechanism is not Config.Mechanism with its
// settings, in the order of their first layers.
func (c Config) layerGroups() []layerGroup {
	var list []layerGroup
	known := map[string]int{}
	for i := range max(len(c.LayerWindows), len(c.LayerMechanisms)) {
		if c.layerWindow(i) == 0 && (i >= len(c.LayerMechanisms) || c.LayerMechanisms[i].Mechanism == "") {
			continue
		}
		name, o := c.layerMechanism(i)
		key := fmt.Sprint(name, o.Order, o.Set) // fmt sorts maps
		at, has := known[key]
		if !has {
			at, known[key] = len(list), len(list)
			list = append(list, layerGroup{first: i})
		}
		list[at].count++
	}
	return list
}

// HasFixedState reports whether no layer has a state that grows with the tokens of a session. It
// returns an error if a mechanism refuses its options.
func (c Config) HasFixedState() (bool, error) {
	groups, own := c.layerGroups(), 0
	for _, g := range groups {
		own += g.count
	}
	if own < c.Layers {
		groups = append(groups, layerGroup{first: noLayer})
	}
	for _, g := range groups {
		m, _, err := bareMixer(c, c.IsCausal(), g.first)
		if err != nil {
			return false, err
		}
		if m != nil && !m.Traits().Streaming {
			return false, nil
		}
	}
	return true, nil
}

// Mechanisms returns the mechanism of each layer's self-attention, with its settings. It returns nil
// for a convolutional net, and for models whose mixer is not attention.
func (c Config) Mechanisms() []LayerMechanism {
	if _, owns := nn.LookupMixer(c.Mechanism); owns || c.Heads == 0 || c.Kind == Convolutional {
		return nil
	}
	list := make([]LayerMechanism, c.Layers)
	for i := range list {
		name, o := c.layerMechanism(i)
		list[i] = LayerMechanism{name, o.Order, maps.Clone(o.Set)}
	}
	return list
}
