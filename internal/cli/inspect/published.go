package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/model"
)

// inspectPublished describes the model of a published folder, its tokenizer, its head and
// the tensors of its files. ignored are fields of config.json that are left out.
func inspectPublished(path string, ignored []string) (*display.Finding, error) {
	m, err := inference.Open(path, inference.Options{IgnoreFields: ignored})
	if err != nil {
		return nil, err
	}
	p := m.Published()
	d, err := p.Describe()
	if err != nil {
		return nil, err
	}
	c := p.Config()
	f := &display.Finding{Kind: "published model"}
	f.Add("family", p.Family())
	f.Add("architecture", d.Architecture)
	if err := describeConfig(f, p.Model()); err != nil {
		return nil, err
	}
	describeShape(f, c)
	if len(c.LayerMechanisms) > 0 && c.HasSessions() {
		if err := describeDecoding(f, p.Model()); err != nil {
			return nil, err
		}
	}
	describeFiles(f, d)
	if words := p.Tokenizer(); words != nil {
		f.AddText("tokenizer", map[string]any{"kind": words.Kind(), "tokens": words.Size()}, "%s of %d tokens", words.Kind(), words.Size())
	} else {
		f.AddText("tokenizer", nil, "%v", p.TokenizerErr())
	}
	if labels := p.Labels(); labels != nil {
		f.AddText("head", map[string]any{"kind": d.Head, "classes": labels}, "%s: %s", d.Head, strings.Join(labels, ", "))
	} else {
		f.AddText("head", map[string]any{"kind": d.Head}, "%s", d.Head)
	}
	if s := d.Pooling; s != nil {
		text := s.Kind
		for _, width := range s.Dense {
			text += fmt.Sprintf(", a linear layer of %d", width)
		}
		if s.IsNormalised {
			text += ", normalised"
		}
		if s.Dimensions > 0 {
			text += fmt.Sprintf(", cut to %d numbers", s.Dimensions)
		}
		if s.MaxTokens > 0 {
			text += fmt.Sprintf(", of the first %d tokens", s.MaxTokens)
		}
		if s.Prompt != "" {
			text += fmt.Sprintf(", after %q", s.Prompt)
		}
		if len(s.Prompts) > 0 {
			text += ", prompts " + strings.Join(slices.Sorted(maps.Keys(s.Prompts)), ", ")
		}
		f.AddText("pooling", s, "%s", text)
	}
	f.AddText("verbs", verbs(m), "%s", strings.Join(verbs(m), ", "))
	if notes := p.Notes(); len(notes) > 0 {
		f.AddText("notes", notes, "%s", strings.Join(notes, "; "))
	}
	f.Add("layer attention", layerTable(c))
	describeExchange(f, p.Calibration())
	tensors := &display.Table{Columns: []string{"tensor", "type", "shape", "parameters"}}
	for _, t := range d.Tensors {
		tensors.AddRow(t.Name, t.Type, t.Shape, names(t.Parameters))
	}
	f.Add("tensors", tensors)
	return f, nil
}

// verbs returns the verbs that use the model as it is.
func verbs(m *inference.Model) (list []string) {
	can := m.Can()
	for _, x := range []struct {
		method string
		verbs  []string
	}{{"Embed", []string{"embed", "search"}}, {"Classify", []string{"predict"}}, {"ClassifyFile", []string{"predict"}}, {"Generate", []string{"generate"}}, {"Score", []string{"score"}}} {
		if slices.Contains(can, x.method) {
			list = append(list, x.verbs...)
		}
	}
	if list = append(list, "serve", "forward"); m.Calibration() != nil {
		return list // published formats have no such attention
	}
	return append(list, "export")
}

// names are printed with spaces between them.
type names []string

func (n names) String() string { return strings.Join(n, " ") }

// describeShape describes layers, positions, and the memory of a decoder's cache.
func describeShape(f *display.Finding, c model.Config) {
	heads := cmp.Or(c.KVHeads, c.Heads)
	width := cmp.Or(c.HeadWidth, c.Width/c.Heads)
	hidden := cmp.Or(c.Hidden, 4*c.Width)
	source := ""
	if c.Kind == model.EncoderDecoder {
		source = fmt.Sprintf(", after %d of the encoder", cmp.Or(c.SourceLayers, c.Layers))
	}
	f.AddText("layers", c.Layers, "%d of width %d%s; %d query heads and %d key heads of width %d; MLP of %d units, %s",
		c.Layers, c.Width, source, c.Heads, heads, width, hidden, cmp.Or(c.Activation, model.TanhGELU))
	switch {
	case c.RopeScaling != nil:
		f.AddText("position encoding", c.Positions, "%s for %d tokens, base %g, scaled by %s", c.Positions, c.Context, cmp.Or(c.RopeTheta, 10000), c.RopeScaling.Kind)
	case c.Positions == model.Rotary:
		f.AddText("position encoding", c.Positions, "%s for %d tokens, base %g", c.Positions, c.Context, cmp.Or(c.RopeTheta, 10000))
	default:
		f.AddText("position encoding", c.Positions, "%s for %d tokens", c.Positions, c.Context)
	}
	if !c.HasSessions() || len(c.LayerMechanisms) > 0 {
		return
	}
	const float = 4 // bytes
	row := int64(2 * heads * width * float)
	var whole, windows, bounded int64
	for i := range c.Layers {
		if w := layerWindow(c, i); w > 0 {
			windows, bounded = windows+1, bounded+row*int64(w)
		} else {
			whole += row
		}
	}
	text := fmt.Sprintf("%s of keys and values for each token", display.FormatBytes(float64(whole)))
	if windows > 0 {
		text += fmt.Sprintf(", and %s at most in %d layers with a window", display.FormatBytes(float64(bounded)), windows)
	}
	f.AddText("decoding", map[string]int64{"token_bytes": whole, "window_bytes": bounded}, "%s", text)
}

// describeFiles describes the tensors of the files together.
func describeFiles(f *display.Finding, d *published.Description) {
	counts := map[string]int64{}
	var types []string
	for _, t := range d.Tensors {
		n := int64(1)
		for _, x := range t.Shape {
			n *= int64(x)
		}
		key := strings.ToLower(t.Type)
		if counts[key] == 0 {
			types = append(types, key)
		}
		counts[key] += n
	}
	parts := make([]string, len(types))
	for i, t := range types {
		parts[i] = fmt.Sprintf("%d elements of %s", counts[t], strings.ToUpper(t))
	}
	f.AddText("stored", counts, "%s in %d tensors", strings.Join(parts, ", "), len(d.Tensors))
}

// layerTable returns the attention of each layer.
func layerTable(c model.Config) *display.Table {
	table := &display.Table{Columns: []string{"layer", "mechanism", "window", "rotation base"}}
	for i := range c.Layers {
		w, base := layerWindow(c, i), 0.
		if c.Positions == model.Rotary {
			if base = cmp.Or(c.RopeTheta, 10000); w > 0 && c.LocalRopeTheta > 0 {
				base = c.LocalRopeTheta
			}
		}
		name, list := c.Mechanism, c.Mechanisms()
		if i < len(list) {
			name = list[i].Mechanism
		}
		if name != c.Mechanism && name != "local" {
			w = 0 // the function has its own near field
		}
		table.AddRow(i, name, w, base)
	}
	return table
}

// describeExchange describes from what an exchanged model was made; nil: the model is not exchanged.
func describeExchange(f *display.Finding, x *exchanged.Calibration) {
	if x == nil {
		return
	}
	numbers := "clusters of the input, no codebooks"
	if len(x.Distances) > 0 {
		numbers = fmt.Sprintf("codebooks of %d tokens a head", x.Tokens)
	}
	text := fmt.Sprintf("%s of the whole model %.4f, of its near fields alone %.4f; %s, in windows of %d", x.Measure, x.Value, x.NearAlone, numbers, x.Window)
	if x.Positions != "" {
		text += ", learned positions interpolated"
	}
	f.AddText("exchange", x, "%s", text)
	if len(x.Distances) == 0 {
		return
	}
	table := &display.Table{Columns: []string{"layer", "distance of held-out keys from their centres, by key heads"}}
	if len(x.WildShares) > 0 {
		table.Columns = append(table.Columns, "wild weights")
	}
	for _, name := range slices.Sorted(maps.Keys(x.Distances)) {
		var list []string
		for _, d := range x.Distances[name] {
			list = append(list, fmt.Sprintf("%.3g", d))
		}
		row := []any{name, strings.Join(list, " ")}
		if len(x.WildShares) > 0 {
			row = append(row, fmt.Sprintf("%.2f %%", 100*x.WildShares[name]))
		}
		table.AddRow(row...)
	}
	f.Add("calibrated distances", table)
}

// layerWindow returns the span of the window of layer i; 0: none.
func layerWindow(c model.Config, i int) int {
	if len(c.LayerWindows) == 0 {
		return 0
	}
	return c.LayerWindows[i]
}

// countWindows returns the number of layers with a window.
func countWindows(c model.Config) (count int) {
	for i := range c.Layers {
		if layerWindow(c, i) > 0 {
			count++
		}
	}
	return count
}
