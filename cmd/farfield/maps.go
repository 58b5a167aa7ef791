package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/report"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// mapsCmd is the verb maps: rows of the attention matrix, drawn.
type mapsCmd struct {
	Mechanism []string `complete:"mechanisms" placeholder:"NAME,..." help:"Attention functions of the arrays, side by side; with --help their settings are listed."`
	settings
	Causal bool `help:"Of arrays: query i sees keys j ≤ i + (M-N)."`
	Row    int  `placeholder:"B" default:"0" help:"Of arrays: batch row (${default})."`

	Model    []string `sep:"none" placeholder:"DIR" help:"Folder of a run, whose latest checkpoint is taken, or of a checkpoint; may be repeated: side by side."`
	Text     string   `xor:"text" placeholder:"TEXT" help:"With --model: what it reads."`
	TextFile string   `xor:"text" placeholder:"FILE" help:"With --model: file with what it reads; - is standard input."`
	Sample   *int     `xor:"text" placeholder:"K" help:"With --model: it reads sample K, from 0, of the part that its task is judged by, as it learned them."`
	Layers   string   `placeholder:"L,..." default:"all" help:"With --model: layers of attention, from 0 (${default})."`
	dataFolder

	Heads string `placeholder:"H,..." default:"all" help:"Query heads, from 0 (${default})."`
	Rows  string `placeholder:"A:B" help:"Queries A ≤ i < B alone. By default all."`
	Most  int    `placeholder:"N" default:"512" help:"Cells of a side of a drawing; larger maps are drawn by the means of square blocks (${default})."`

	OwnScales bool `help:"Give each map a colour scale of its own, up to its largest weight. By default all share one."`

	Out  string `short:"o" placeholder:"FILE" help:"Draw them, as .png, .svg or .html."`
	NPZ  string `name:"npz" placeholder:"FILE" help:"Write the numbers, as .npz or .safetensors: an array (heads,queries,keys) for each layer or mechanism."`
	JSON bool   `name:"json" help:"Print what is known of each head as JSON."`

	In string `arg:"" optional:"" name:"in" help:"Without --model: arrays q and k as attend takes them, in .npz or .safetensors."`
}

func (c *mapsCmd) Help() string {
	return "Draws queries as rows, the first at the top, and keys as columns. Tokens are labelled by what they say, where a side has 64 cells at most, " +
		"or by their numbers where their task has no letters for them; other positions are counted from 0. A position that the model has put in front is cls, or 0 where they are counted. " +
		"Of a task of images --sample draws the image beside the maps, in grey, with its number and its class above; patches follow row by row. " +
		"Of a pair both parts are drawn.\n\n" +
		"Prints of each head, as means over its queries: entropy, −Σ p ln p of the shares p of absolute weight, in nats; distance, Σ p |j − i|, in tokens; diagonal, the share of the query's own place; column, the share of the key that has most of all." + examples(
		"farfield maps --mechanism fastmax,softmax --causal --out maps.png qkv.npz",
		`farfield maps --model run/001 --text "To be, or not to be" --layers 0 --out maps.svg`,
		"farfield maps --model run/001 --text-file notes.txt --rows 0:64 --json",
	)
}

// mapElements is the most elements that the maps of one call may have.
const mapElements = 1 << 27

// attentionMap is what is drawn of one head.
type attentionMap struct {
	From  string `json:"from"` // the model or the mechanism
	Layer string `json:"layer,omitempty"`
	Head  int    `json:"head"`
	attention.Locality

	weights tensor.Mat[float32]
	call    int          // maps of one call have the same number
	first   int          // query of the first row
	tokens  []string     // of models: one for each key; nil: positions
	picture *report.Heat // that the model sees; nil: none
}

func (m *attentionMap) title() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s head %d", m.From, m.Layer, m.Head))
}

func (c *mapsCmd) Run(e *env) error {
	if err := c.check(); err != nil {
		return err
	}
	var list []attentionMap
	err := e.interruptible(func() (err error) {
		if len(c.Model) > 0 {
			list, err = c.models(e)
		} else {
			list, err = c.arrays()
		}
		return input(err)
	})
	if err != nil {
		return err
	}
	if err := c.write(list); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.stdout, list)
	}
	return printMaps(e.stdout, list)
}

// check reports flags that do not go together, and files that cannot be written.
func (c *mapsCmd) check() error {
	switch {
	case len(c.Model) > 0 && (c.In != "" || len(c.Mechanism) > 0 || c.Order != nil || len(c.Set) > 0 || c.Causal || c.Row != 0):
		return inputf("--model: has its own mechanism and input; arrays, --mechanism and what belongs to it go without")
	case len(c.Model) > 0 && c.Text == "" && c.TextFile == "" && c.Sample == nil:
		return inputf("--model: needs --text, --text-file or --sample")
	case len(c.Model) == 0 && (c.Text != "" || c.TextFile != "" || c.Sample != nil || c.Layers != "all"):
		return inputf("--text, --text-file, --sample, --layers: need --model")
	case len(c.Model) == 0 && (c.In == "" || len(c.Mechanism) == 0):
		return inputf("needs --model with --text or --sample, or --mechanism with a file of arrays")
	case c.Most < 1:
		return inputf("--most: %d is less than 1", c.Most)
	}
	if c.Out != "" && !slices.Contains([]string{".png", ".svg", ".html"}, filepath.Ext(c.Out)) {
		return inputf("--out: the suffix of %s is %q, needs .png, .svg or .html", c.Out, filepath.Ext(c.Out))
	}
	if err := checkOutput(c.Out, c.TextFile); err != nil {
		return inputf("--out: %w", err)
	}
	if c.NPZ != "" {
		if _, err := writerFor(c.NPZ, c.In, c.TextFile); err != nil {
			return inputf("--npz: %w", err)
		}
	}
	return nil
}

// chosen returns the numbers of a list below n; all of them for the word all.
func chosen(flag, list string, n int) ([]int, error) {
	var numbers []int
	if list == "all" {
		for i := range n {
			numbers = append(numbers, i)
		}
		return numbers, nil
	}
	for _, text := range strings.Split(list, ",") {
		i, err := strconv.Atoi(text)
		if err != nil || i < 0 || i >= n {
			return nil, fmt.Errorf("%s: %q is none of the %d, counted from 0", flag, text, n)
		}
		numbers = append(numbers, i)
	}
	return numbers, nil
}

// rows returns the queries to look at, of n.
func (c *mapsCmd) rows(n int) (from, to int, err error) {
	if c.Rows == "" {
		return 0, n, nil
	}
	a, b, _ := strings.Cut(c.Rows, ":")
	from, errA := strconv.Atoi(a)
	to, errB := strconv.Atoi(b)
	if errA != nil || errB != nil || from < 0 || from >= to || to > n {
		return 0, 0, fmt.Errorf("--rows: %s is no A:B with 0 ≤ A < B ≤ %d", c.Rows, n)
	}
	return from, to, nil
}

// look appends the maps of the chosen heads of one call, of a sequence of n queries
// before the padding.
func (c *mapsCmd) look(list []attentionMap, m attention.Mechanism[float32], call *attention.Call[float32], row, n int, of attentionMap) ([]attentionMap, error) {
	heads, err := chosen("--heads", c.Heads, call.Q.H)
	if err != nil {
		return nil, err
	}
	from, to, err := c.rows(n)
	if err != nil {
		return nil, err
	}
	keys := call.K.N
	valid := keys - (call.Q.N - n)
	before := 0
	for i := range list {
		before += len(list[i].weights.Data)
	}
	if n := float64(len(heads)) * float64(to-from) * float64(keys); n+float64(before) > mapElements {
		return nil, fmt.Errorf("%s: %d heads of %d rows of %d keys are more than %d elements in all; --rows, --heads and --layers choose fewer", of.From, len(heads), to-from, keys, mapElements)
	}
	if len(list) > 0 {
		of.call = list[len(list)-1].call + 1
	}
	for _, h := range heads {
		one := of
		one.Head, one.first = h, from
		one.weights = tensor.Mat[float32]{Data: make([]float32, (to-from)*keys), Rows: to - from, Cols: keys, Stride: keys}
		if err := m.Weights(one.weights, call, row, h, from, to); err != nil {
			return nil, fmt.Errorf("%s: %w", of.From, err)
		}
		if valid < keys { // padding has no weight
			for i := range one.weights.Rows {
				copy(one.weights.Data[i*valid:], one.weights.Row(i)[:valid])
			}
			one.weights = tensor.Mat[float32]{Data: one.weights.Data[:(to-from)*valid], Rows: to - from, Cols: valid, Stride: valid}
		}
		one.Locality = attention.Locate(one.weights, from+keys-call.Q.N)
		list = append(list, one)
	}
	return list, nil
}

// keysAlone is a file of q and k: keys stand for values, which maps do not need.
type keysAlone struct{ array.Source }

func (s keysAlone) Names() []string { return append(slices.Clone(s.Source.Names()), "v") }

func (s keysAlone) ReadArray(name string) (*array.Array, error) {
	if name == "v" {
		name = "k"
	}
	return s.Source.ReadArray(name)
}

func (s keysAlone) ReadHeader(name string) (array.DType, []int, error) {
	if name == "v" {
		name = "k"
	}
	return s.Source.ReadHeader(name)
}

// arrays makes the maps of a file for each mechanism.
func (c *mapsCmd) arrays() (list []attentionMap, err error) {
	in, err := openArrays(c.In)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var src array.Source = in
	if !slices.Contains(in.Names(), "v") {
		src = keysAlone{in}
	}
	for i, name := range c.Mechanism {
		own, err := c.settingsOf(name)
		if err != nil {
			return nil, err
		}
		p, err := readProblem[float32](&attendCmd{Mechanism: name, settings: own, Causal: c.Causal, Form: "auto", In: c.In}, src)
		if err != nil {
			return nil, err
		}
		if c.Row < 0 || c.Row >= p.call.Q.B {
			return nil, fmt.Errorf("--row: %d is none of the %d, counted from 0", c.Row, p.call.Q.B)
		}
		if slices.Contains(c.Mechanism[:i], name) {
			return nil, fmt.Errorf("--mechanism: %s is there twice", name)
		}
		if list, err = c.look(list, p.mech, &p.call, c.Row, p.call.Q.N, attentionMap{From: name}); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// settingsOf returns those of the settings that a mechanism has. Each has to be one
// of some mechanism's.
func (c *mapsCmd) settingsOf(name string) (settings, error) {
	row, err := lookupFunction(name)
	if err != nil {
		return settings{}, err
	}
	if len(c.Mechanism) == 1 {
		return c.settings, nil
	}
	has := func(r mechanism.Row, key string) bool {
		return slices.ContainsFunc(r.Settings, func(s mechanism.Setting) bool { return s.Name == key })
	}
	own := settings{Set: map[string]string{}}
	if row.Order > 0 {
		own.Order = c.Order
	}
	for key, value := range c.Set {
		if has(row, key) {
			own.Set[key] = value
			continue
		}
		if !slices.ContainsFunc(c.Mechanism, func(other string) bool {
			r, err := mechanism.Lookup(other)
			return err == nil && has(r, key)
		}) {
			return own, fmt.Errorf("--set: %s is a setting of none of %s", key, strings.Join(c.Mechanism, ", "))
		}
	}
	return own, nil
}

// models makes the maps of a text or of a sample for each model.
func (c *mapsCmd) models(e *env) (list []attentionMap, err error) {
	text := []byte(c.Text)
	if c.TextFile != "" {
		if text, err = readText(e, c.TextFile); err != nil {
			return nil, err
		}
	}
	for _, dir := range c.Model {
		m, vocab, err := train.LoadModel(dir)
		if err != nil {
			return nil, err
		}
		var in *reading
		if c.Sample != nil {
			in, err = c.sample(dir, vocab)
		} else {
			in, err = readingOf(dir, vocab, text)
		}
		if err != nil {
			return nil, err
		}
		if list, err = c.model(list, dir, m, in); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// reading is what a model reads.
type reading struct {
	batch   *model.Batch
	labels  []string // of its positions; nil: none
	picture *report.Heat
}

// readingOf is a text, for a model with a vocabulary.
func readingOf(dir string, vocab *token.Vocabulary, text []byte) (*reading, error) {
	if vocab == nil {
		return nil, fmt.Errorf("--text: %s learned no text; --sample shows it one of its task", dir)
	}
	tokens, err := vocab.Encode(nil, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(tokens) == 0 {
		return nil, errors.New("--text: is empty")
	}
	labels, err := tokenLabels(vocab, tokens)
	return &reading{batch: &model.Batch{B: 1, N: len(tokens), Tokens: tokens}, labels: labels}, err
}

func tokenLabels(vocab *token.Vocabulary, tokens []int32) ([]string, error) {
	labels := make([]string, len(tokens))
	for i, t := range tokens {
		one, err := vocab.Decode(nil, t)
		if err != nil {
			return nil, err
		}
		labels[i] = tokenLabel(string(one))
	}
	return labels, nil
}

// sample is a sample of the task that a model learned, as it learned it.
func (c *mapsCmd) sample(dir string, vocab *token.Vocabulary) (*reading, error) {
	raw, config, err := (&evalCmd{Model: dir, dataFolder: c.dataFolder}).open()
	if err != nil {
		return nil, err
	}
	_, src, err := config.PrepareTask(raw)
	if err != nil {
		return nil, err
	}
	spec := src.Spec()
	split := spec.JudgedSplit()
	var s task.Sample
	if err := src.Sample(&s, split, *c.Sample); err != nil {
		return nil, fmt.Errorf("--sample: %w", err)
	}
	in := &reading{batch: train.PackBatch(spec, s)}
	title := fmt.Sprintf("sample %d", *c.Sample)
	if spec.Kind == task.Class {
		title += fmt.Sprintf(", class %d", s.Class)
	}
	if p, ok := raw.(task.PictureSource); ok {
		m, err := p.Picture(split, *c.Sample)
		if err != nil {
			return nil, err
		}
		h := report.NewGreyHeat(title, m.Height, m.Width, m.Pixels)
		in.picture = &h
		return in, nil
	}
	switch {
	case vocab != nil:
		in.labels, err = tokenLabels(vocab, s.Tokens)
	case spec.Vocab > 0 && spec.Parts == 1:
		for _, t := range s.Tokens {
			in.labels = append(in.labels, strconv.Itoa(int(t)))
		}
	}
	return in, err
}

// readText reads a file, or standard input for -.
func readText(e *env, path string) ([]byte, error) {
	r, err := openText(e, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const most = 1 << 24
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: has more than %d bytes", path, most)
	}
	return text, err
}

// model appends the maps of one model, in one pass over what it reads.
func (c *mapsCmd) model(list []attentionMap, dir string, m *model.Model[float32], in *reading) ([]attentionMap, error) {
	var names []string
	m.WrapMechanisms(func(name string, of attention.Mechanism[float32]) attention.Mechanism[float32] {
		names = append(names, name)
		return of
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: its mixer is %s, which has no attention matrix", dir, m.Config().Mechanism)
	}
	layers, err := chosen("--layers", c.Layers, len(names))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	b := in.batch
	defer m.Watch(func(name string, of attention.Mechanism[float32], call *attention.Call[float32]) error {
		if !slices.Contains(layers, slices.Index(names, name)) {
			return nil
		}
		for row := range b.B {
			one := attentionMap{From: filepath.Base(filepath.Clean(dir)) + " " + m.Config().Mechanism, Layer: name, tokens: in.labels, picture: in.picture}
			if b.B > 1 {
				one.Layer += fmt.Sprintf(" part %d", row)
			}
			n := call.Q.N
			if b.Lens != nil {
				n -= b.N - int(b.Lens[row])
			}
			if in.labels != nil && call.K.N == len(in.labels)+1 { // one of the model's own comes first
				one.tokens = append([]string{"cls"}, in.labels...)
			}
			var err error
			if list, err = c.look(list, of, call, row, n, one); err != nil {
				return err
			}
		}
		return nil
	})()
	if _, _, err := m.Vectors(nil, b); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return list, nil
}

// tokenLabel is a token where there is room for one character: what cannot be seen
// has a mark.
func tokenLabel(s string) string {
	switch s {
	case " ":
		return "·"
	case "\n":
		return "¶"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// heat is the map as it is drawn, and the side of the blocks whose means that is.
func (m *attentionMap) heat(most int) (report.Heat, int) {
	h := report.Heat{
		Title: m.title(), Rows: m.weights.Rows, Cols: m.weights.Cols, Values: make([]float64, len(m.weights.Data)),
		X: report.Axis{Label: "keys"}, Y: report.Axis{Label: "queries", First: m.first},
	}
	for i, w := range m.weights.Data {
		h.Values[i] = float64(w)
	}
	if len(m.tokens) == h.Cols && m.first+h.Rows <= len(m.tokens) {
		h.X.Ticks, h.Y.Ticks = m.tokens, m.tokens[m.first:][:h.Rows]
	}
	return h.ReduceCells(most)
}

// colouredShare is the part of the weights that the common colours tell apart: the
// first rows of a causal map, whose few keys have large weights, would drown the rest.
const colouredShare = 0.98

// write makes the files that are asked for.
func (c *mapsCmd) write(list []attentionMap) error {
	if c.Out != "" {
		maps := &report.Maps{Title: "Attention maps"}
		side := 1
		for i := range list {
			one := &list[i]
			if one.picture != nil && (i == 0 || one.picture != list[i-1].picture) { // of another model
				maps.Heats = append(maps.Heats, *one.picture)
			}
			h, by := one.heat(c.Most)
			maps.Heats = append(maps.Heats, h)
			side = max(side, by)
		}
		// What is to be compared comes one below the other, where there is room.
		n := 0
		for n < len(list) && list[n].From == list[0].From {
			n++
		}
		if list[0].picture != nil {
			n++
		}
		if n > 1 && n <= 5 {
			maps.Columns = n
		}
		if side > 1 {
			maps.Title += fmt.Sprintf(", means of blocks of up to %d × %d", side, side)
		}
		scale := ""
		if !c.OwnScales {
			if end := maps.LimitColours(colouredShare); end > 0 {
				scale = fmt.Sprintf("One scale for all, which ends at %.2g: %.0f %% of the weights lie beyond.", end, 100*(1-colouredShare))
			} else if len(list) > 1 {
				scale = "One scale for all."
			}
		}
		var draw func(io.Writer) error
		if filepath.Ext(c.Out) == ".html" {
			draw = mapsPage(maps, scale, list).WriteHTML
		} else {
			maps.Title = strings.TrimSuffix(maps.Title+". "+scale, ". ")
			draw = maps.WritePNG
			if filepath.Ext(c.Out) == ".svg" {
				draw = maps.WriteSVG
			}
		}
		if err := atomicfile.Write(c.Out, draw); err != nil {
			return err
		}
	}
	if c.NPZ == "" {
		return nil
	}
	write, err := writerFor(c.NPZ)
	if err != nil {
		return input(err)
	}
	return atomicfile.Write(c.NPZ, func(w io.Writer) error { return write(w, mapArrays(list)) })
}

// mapArrays joins the heads of each call.
func mapArrays(list []attentionMap) []*array.Array {
	var all []*array.Array
	for len(list) > 0 {
		first, n := &list[0], 0
		var data []float32
		for n < len(list) && list[n].call == first.call {
			data = append(data, list[n].weights.Data...)
			n++
		}
		name := strings.ReplaceAll(strings.TrimSpace(first.From+" "+first.Layer), " ", ".")
		if slices.ContainsFunc(all, func(a *array.Array) bool { return a.Name == name }) {
			name += fmt.Sprintf(".%d", first.call)
		}
		all = append(all, newArray(name, data, []int{n, first.weights.Rows, first.weights.Cols}))
		list = list[n:]
	}
	return all
}

// mapCells are what is known of each head, as text.
func mapCells(list []attentionMap) (head []string, rows [][]string) {
	for _, m := range list {
		rows = append(rows, []string{
			m.From, m.Layer, strconv.Itoa(m.Head), strconv.Itoa(m.Queries),
			fmt.Sprintf("%.3f", m.Entropy), fmt.Sprintf("%.2f", m.Distance),
			fmt.Sprintf("%.3f", m.Diagonal), fmt.Sprintf("%.3f", m.Column), strconv.Itoa(m.ColumnAt),
		})
	}
	return []string{"from", "layer", "head", "queries", "entropy", "distance", "diagonal", "column", "at"}, rows
}

func printMaps(w io.Writer, list []attentionMap) error {
	head, rows := mapCells(list)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range slices.Concat([][]string{head}, rows) {
		fmt.Fprintln(t, strings.Join(escapedAll(r), "\t")+"\t")
	}
	return t.Flush()
}

func mapsPage(maps *report.Maps, scale string, list []attentionMap) *report.Page {
	title := maps.Title
	maps.Title = ""
	head, rows := mapCells(list)
	return &report.Page{
		Title: title, Lead: scale,
		Sections: []report.Section{{Maps: maps}, {
			Title: "Where the weights lie",
			Table: &report.Table{Head: head, Rows: rows, Note: "Means over queries. Entropy in nats; distance in tokens; diagonal is the share of the query's own place, column that of the key with most of all weight."},
		}},
		About: report.DescribeBuild("farfield " + strings.Join(os.Args[1:], " ")),
	}
}
