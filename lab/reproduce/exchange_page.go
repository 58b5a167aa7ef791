package reproduce

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/report"
)

// exchangeRequired are the figures that the project sets itself: the least mean cosine, of the worst
// kind of texts, by piece and cells and order.
var exchangeRequired = map[string]map[string]float64{
	"minilm":     {"256/0": 0.988, "256/1": 0.995},
	"kinds-512":  {"512/0": 0.988, "512/1": 0.995, "1024/0": 0.993},
	"books-2048": {"512/0": 0.990, "512/1": 0.993},
	"books-4096": {"512/0": 0.988, "1024/0": 0.993, "2048/0": 0.997},
}

const (
	// allPairs is the share of pairs from which on clusters of the input are softmax.
	allPairs     = 0.999
	neededCosine = 0.99                                 // of clusters of the input
	swapNote     = "Seeds: 0 for codebooks and draws. " // of tables with codebooks
)

// neededPairs are the largest shares of pairs, centres included, with which clusters of the input are
// to keep neededCosine.
var neededPairs = map[int]float64{2048: 0.20, 8192: 0.10}

// neededNats are the most nats a token that stories260K may lose with order 1, by cells.
var neededNats = map[string]float64{"64": 0.013, "256": 0.003}

func exchangeOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	for _, f := range []func(*Options, *Results) error{out.encoders, out.uses, out.decoders, out.books, out.inputs, out.needles} {
		if err := f(o, r); err != nil {
			return nil, err
		}
	}
	why, found, err := get[string](r, "encoder-decoder")
	if err != nil {
		return nil, err
	}
	if found {
		out.find("%s cannot be exchanged: %s.", g2p, why)
	}
	return out, nil
}

// swaps returns the results of pieces with a prefix, in the order of the methods.
func swaps(o *Options, r *Results, prefix string) (list []swapped, of []method, err error) {
	for _, m := range swapMethods() {
		x, found, err := get[[]swapped](r, prefix+m.file())
		if err != nil {
			return nil, nil, err
		}
		if found {
			list, of = append(list, x[0]), append(of, m)
		}
	}
	return list, of, nil
}

// refusals adds to a note what the model cannot have, by reasons.
func refusals(note string, list []swapped) string {
	var reasons []string
	names := map[string][]string{}
	for _, x := range list {
		if x.Refused == "" {
			continue
		}
		why := x.Refused
		switch {
		case strings.Contains(why, "mean nothing before training"):
			why = "has learned numbers that mean nothing before training"
		case strings.Contains(why, "causal"):
			why = "is not causal"
		}
		why = strings.TrimPrefix(strings.TrimPrefix(why, "exchange: "), "layer_mechanisms: ")
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], x.Label)
	}
	for _, why := range reasons {
		note += fmt.Sprintf(" Refused: %s (%s).", listed(names[why]), why)
	}
	return note
}

// flops writes multiply-adds.
func flopsCell(x float64) string {
	if x == 0 {
		return none
	}
	return digits(x / 2e6)
}

// ratio writes processor time over that of the trained model.
func ratio(x *swapped) string {
	if x.Trained == 0 {
		return none
	}
	return digits(x.Seconds / x.Trained)
}

// isMultipole reports whether a method is multipole, near whether it is a near field alone.
func isMultipole(m *method) bool { return m.Name == exchange.Name }
func isNear(m *method) bool      { return m.Name == nearName || m.Label == windowAlone.Label }

// ranking says who comes first, what the best rival has, and what the near field alone has. Values are
// sorted so that the first one is the best.
type ranking struct {
	labels []string
	values []float64
	of     []method
}

func (k *ranking) add(m method, label string, value float64) {
	k.labels, k.values, k.of = append(k.labels, label), append(k.values, value), append(k.of, m)
}

// best returns the place of the least value among methods; -1: there is none.
func (k *ranking) best(is func(m *method) bool) int {
	best := -1
	for i := range k.of {
		if is(&k.of[i]) && (best < 0 || k.values[i] < k.values[best]) {
			best = i
		}
	}
	return best
}

// sentence says who wins. text writes a value, lost reports whether it is of no use.
func (k *ranking) sentence(what string, text func(float64) string, lost func(float64) bool) string {
	first := k.best(func(m *method) bool { return m.Name != softmax.Name })
	if first < 0 {
		return ""
	}
	s := fmt.Sprintf("%s: %s keeps most, with %s", what, k.labels[first], text(k.values[first]))
	for _, of := range []struct {
		what string
		is   func(m *method) bool
	}{
		{"multipole's best is %s", isMultipole},
		{"the near field alone has %s", func(m *method) bool { return m.Name == nearName }},
		{"the best other mechanism is %s", func(m *method) bool { return !isMultipole(m) && !isNear(m) && m.Name != softmax.Name }},
	} {
		i := k.best(of.is)
		switch {
		case i < 0 || i == first:
		case strings.HasPrefix(of.what, "the near"):
			s += "; " + fmt.Sprintf(of.what, text(k.values[i]))
		default:
			s += "; " + fmt.Sprintf(of.what, k.labels[i]+" with "+text(k.values[i]))
		}
	}
	useless, others := 0, 0
	for i, v := range k.values {
		if k.of[i].Name == softmax.Name {
			continue
		}
		if others++; lost(v) {
			useless++
		}
	}
	if useless > 0 {
		s += fmt.Sprintf("; %d of %d others destroy the model", useless, others)
	}
	return s + "."
}

// encoders is the table of MiniLM.
func (out *Outcome) encoders(o *Options, r *Results) error {
	list, of, err := swaps(o, r, "minilm-")
	if err != nil || len(list) == 0 {
		return err
	}
	t := report.Table{Title: miniLM + ", windows of 512 tokens of meetings", Head: []string{"mechanism", "cosine of vectors", "least", "cosine of rows", "10⁶ multiply-adds, 512", "8192", "time of a pass / trained"},
		Note: refusals(swapNote+"Cosines with the vectors of the trained model, mean and least of the windows that judge, which made no codebook. Multiply-adds are counted, of attention in all layers. Times are of processors, of whole passes in turns with the trained model, beside other work.", list)}
	var k ranking
	for i, x := range list {
		s, has := x.Kinds[meetings]
		if !has {
			continue
		}
		addRow(&t, x.Label, fmt.Sprintf("%.4f", s.Cosine), fmt.Sprintf("%.4f", s.Least), fmt.Sprintf("%.4f", s.Rows), flopsCell(x.FLOPs[512]), flopsCell(x.FLOPs[longTokens]), ratio(&x))
		if x.Pairs < allPairs {
			k.add(of[i], x.Label, 1-s.Cosine)
		}
	}
	out.Tables = append(out.Tables, t)
	out.find("%s", k.sentence("Encoder, cosine", func(v float64) string { return fmt.Sprintf("%.4f", 1-v) }, func(v float64) bool { return v > 0.5 }))
	var softmaxFLOPs map[int]float64
	costs := ""
	for i, x := range list {
		if of[i].Name == softmax.Name {
			softmaxFLOPs = x.FLOPs
		}
		if isMultipole(&of[i]) && x.Kinds[meetings].Cosine >= neededCosine && softmaxFLOPs[longTokens] > 0 {
			costs += fmt.Sprintf("; %s %s and %s", x.Label, digits(x.FLOPs[512]/softmaxFLOPs[512]), digits(x.FLOPs[longTokens]/softmaxFLOPs[longTokens]))
		}
	}
	if costs != "" {
		out.find("Encoder, multiply-adds of attention beside softmax's at 512 and at %d tokens, of those with a cosine of %g: %s. At 512 tokens the exchange saves nothing or little.", longTokens, neededCosine, costs[2:])
	}
	return nil
}

// uses is the table of search and classes.
func (out *Outcome) uses(_ *Options, r *Results) error {
	t := report.Table{Title: "What a user of " + miniLM + " notices", Head: []string{"mechanism", "search, MRR", "recall at 5", "reviews right", "processor s"}}
	var k ranking
	var own swapUse
	for _, m := range usedMethods() {
		x, found, err := get[swapUse](r, "use-"+m.file())
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if m.Name == softmax.Name {
			own = x
		}
		addRow(&t, m.Label, digits(x.MRR), digits(x.Recall), percent(x.Right), digits(x.Seconds))
		k.add(m, m.Label, 1-x.MRR)
		t.Note = fmt.Sprintf("Search: the piece of 510 tokens of a meeting that answers a question; %d questions, %d pieces; pieces are exchanged, questions are not. Reviews: a linear classifier that learned from vectors of the trained model, on %d other reviews of IMDB, their first %d tokens. One standard error is about %.2f in MRR and %s in reviews.",
			x.Questions, x.Pieces, x.Reviews, reviewTokens, 0.38/rootOf(x.Questions), percent(0.4/rootOf(x.Reviews)))
	}
	if len(t.Rows) == 0 {
		return nil
	}
	out.Tables = append(out.Tables, t)
	near, cells := k.best(func(m *method) bool { return m.Name == nearName }), k.best(isMultipole)
	if near >= 0 && cells >= 0 && own.Questions > 0 {
		verdict := "the far field is not needed for this search"
		if k.values[near] > k.values[cells]+0.05 {
			verdict = "the far field counts in this search"
		}
		out.find("In use: MRR is %s with softmax, %s with %s and %s with the near field alone: %s.", digits(own.MRR), digits(1-k.values[cells]), k.labels[cells], digits(1-k.values[near]), verdict)
	}
	return nil
}

// decoders are the tables of stories260K and of the model of bytes.
func (out *Outcome) decoders(o *Options, r *Results) error {
	for _, of := range []struct{ prefix, kind, title, what string }{
		{"stories-", tales, stories + ", windows of 512 tokens of stories", "Decoder of stories, nats a token more than softmax"},
		{"bytes-", bytes8, "Our own softmax model of bytes, windows of 1024 bytes of enwik8", "Our own decoder of bytes, nats a byte more than softmax"},
	} {
		list, methods, err := swaps(o, r, of.prefix)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			continue
		}
		t := report.Table{Title: of.title, Head: []string{"mechanism", "nats more", "on another part", "10⁶ multiply-adds, window", "8192", "state, kB", "time of a pass / trained"}}
		var k ranking
		own := 0.0
		for i, x := range list {
			s, has := x.Kinds[of.kind]
			if !has {
				continue
			}
			short := 0.0
			for n, f := range x.FLOPs {
				if n != longTokens {
					short = f
				}
			}
			state := none
			if x.State > 0 {
				state = digits(x.State / 1e3)
			}
			cell := fmt.Sprintf("%+.4f", s.Nats)
			if x.Pairs >= allPairs {
				cell += " (all keys are near)"
			}
			if cells := methods[i].Set["cells"]; of.prefix == "stories-" && methods[i].Order == 1 && neededNats[cells] > 0 {
				cell += verdict(s.Nats <= neededNats[cells], fmt.Sprintf("at most %g", neededNats[cells]))
			}
			other := none
			if y, has := x.Kinds[tales2]; has {
				other = fmt.Sprintf("%+.4f", y.Nats)
			}
			addRow(&t, x.Label, cell, other, flopsCell(short), flopsCell(x.FLOPs[longTokens]), state, ratio(&x))
			if own = s.Trained; x.Pairs < allPairs {
				k.add(methods[i], x.Label, s.Nats)
			}
		}
		parts := ""
		if of.kind == tales {
			parts = "The other part are the last stories of the file; codebooks are of those in the middle. "
		}
		t.Note = refusals(fmt.Sprintf("%sThe trained model has %.4f nats a token. %sState: bytes of a session behind a window; softmax keeps keys and values. Multiply-adds are counted, of attention in all layers; times as above.", swapNote, own, parts), list)
		out.Tables = append(out.Tables, t)
		out.find("%s", k.sentence(of.what, func(v float64) string { return fmt.Sprintf("%+.4f", v) }, func(v float64) bool { return v > 0.5 }))
	}
	return nil
}

// verdict says whether a required figure is reached.
func verdict(reached bool, what string) string {
	if reached {
		return " (" + what + ": reached)"
	}
	return " (" + what + ": not reached)"
}

// books is the table of codebooks by lengths and kinds.
func (out *Outcome) books(o *Options, r *Results) error {
	t := report.Table{Title: miniLM + ", codebooks by length and kind of text", Head: []string{"tokens", "mechanism", "near field", "kinds", "least kind's cosine", "required", "near field alone"},
		Note: swapNote + "Codebooks are of the kinds that judge, other texts. From 2048 tokens on, learned positions are interpolated in both models. The mean over windows, of the kind that keeps least."}
	missed, rows := []string{}, 0
	add := func(name string, tokens int, list []swapped, methods []method) {
		near := none
		for i, x := range list {
			if methods[i].Name == nearName && x.Refused == "" {
				_, v := leastKind(&x)
				near = fmt.Sprintf("%.4f", v)
			}
		}
		for i, x := range list {
			m := methods[i]
			key := fmt.Sprintf("%s/%d", m.Set["cells"], m.Order)
			need := exchangeRequired[name][key]
			if m.Name != exchange.Name || need == 0 || x.Refused != "" {
				continue
			}
			kind, v := leastKind(&x)
			rows++
			if v < need {
				missed = append(missed, fmt.Sprintf("%d tokens, %s: %.4f in place of %.3f", tokens, x.Label, v, need))
			}
			kinds := meetings
			if len(x.Kinds) > 1 {
				kinds = fmt.Sprintf("%d, least %s", len(x.Kinds), kind)
			}
			addRow(&t, fmt.Sprint(tokens), x.Label, fmt.Sprintf("block %s, window %s", m.Set["block"], m.Set["window"]), kinds, fmt.Sprintf("%.4f", v), strings.TrimSuffix(fmt.Sprintf("%.3f", need)+strings.Replace(verdict(v >= need, ""), " (:", ":", 1), ")"), near)
		}
	}
	all, methods, err := swaps(o, r, "minilm-")
	if err != nil {
		return err
	}
	add("minilm", 512, all, methods)
	for _, c := range exchangeConfigs(o) {
		if exchangeRequired[c.name] == nil {
			continue
		}
		list, found, err := get[[]swapped](r, c.name)
		if err != nil {
			return err
		}
		if found {
			add(c.name, c.Tokens, list, c.Methods)
		}
	}
	if rows == 0 {
		return nil
	}
	out.Tables = append(out.Tables, t)
	if len(missed) == 0 {
		out.find("Codebooks: all %d required figures that were measured are reached.", rows)
	} else {
		out.find("Codebooks: %d of %d required figures that were measured are not reached: %s.", len(missed), rows, strings.Join(missed, "; "))
	}
	return nil
}

// leastKind returns the kind of texts with the least cosine.
func leastKind(x *swapped) (kind string, cosine float64) {
	cosine = 2
	for k, s := range x.Kinds {
		if s.Cosine < cosine || s.Cosine == cosine && k < kind {
			kind, cosine = k, s.Cosine
		}
	}
	return kind, cosine
}

// inputs is the table of clusters of the input.
func (out *Outcome) inputs(o *Options, r *Results) error {
	t := report.Table{Title: miniLM + ", clusters of the input", Head: []string{"tokens", "tol", "cosine", "least", "pairs", "with centres", "10⁶ multiply-adds / softmax"},
		Note: fmt.Sprintf("Learned positions are interpolated in both models. Pairs: the share of pairs of queries and keys that are computed one by one, and with the centres that every query meets. Required: a cosine of %g with at most %s at 2048 tokens and %s at 8192.", neededCosine, percent(neededPairs[2048]), percent(neededPairs[8192]))}
	least := map[int]float64{}
	for _, c := range exchangeConfigs(o) {
		if len(c.Methods) != 1 || c.Methods[0].Set["centres"] != "input" || !strings.HasPrefix(c.name, "input-") {
			continue
		}
		list, found, err := get[[]swapped](r, c.name)
		if err != nil {
			return err
		}
		if !found || list[0].Refused != "" {
			continue
		}
		x := list[0]
		s := x.Kinds[meetings]
		share := x.Pairs + x.Centres
		addRow(&t, fmt.Sprint(c.Tokens), c.Methods[0].Set["tol"], fmt.Sprintf("%.4f", s.Cosine), fmt.Sprintf("%.4f", s.Least), percent(x.Pairs), percent(share), digits(x.FLOPs[c.Tokens]/(4*6*384*float64(c.Tokens)*float64(c.Tokens))))
		if _, has := least[c.Tokens]; !has {
			least[c.Tokens] = 2
		}
		if s.Cosine >= neededCosine {
			least[c.Tokens] = min(least[c.Tokens], share)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	out.Tables = append(out.Tables, t)
	for _, n := range []int{2048, 8192} {
		share, has := least[n]
		switch {
		case !has:
		case share > 1:
			out.find("Clusters of the input, %d tokens: no tol of the table keeps a cosine of %g.", n, neededCosine)
		default:
			out.find("Clusters of the input, %d tokens: a cosine of %g takes %s of the pairs, centres included%s.", n, neededCosine, percent(share), verdict(share <= neededPairs[n], "required: at most "+percent(neededPairs[n])))
		}
	}
	return nil
}

// needles is the table of recall.
func (out *Outcome) needles(o *Options, r *Results) error {
	t := report.Table{Title: "Our own softmax model of needle: lines recalled", Head: []string{"window", "mechanism", "values right", "bytes right", "questions", "processor s a window", "state, kB"},
		Note: swapNote + "The model learned with softmax in windows of 256 to 4096 bytes and has the mechanism bare in all layers. A value is right if its four bytes are. Windows pass through the state of a session. Softmax keeps all keys and values; clusters of the input keep them, too, and read some."}
	var refused []swapped
	for _, of := range needleAsked {
		var k ranking
		own := -1.0
		for _, m := range needleMethods() {
			x, found, err := get[swappedNeedles](r, fmt.Sprintf("needle-%dk-%s", of.length>>10, m.file()))
			if err != nil {
				return err
			}
			if !found {
				continue
			}
			if x.Refused != "" {
				refused = append(refused, swapped{Label: m.Label, Refused: x.Refused})
				continue
			}
			var sum needleBucket
			for _, b := range x.Answers.Buckets {
				sum.Questions, sum.Values, sum.RightBytes, sum.AskedBytes = sum.Questions+b.Questions, sum.Values+b.Values, sum.RightBytes+b.RightBytes, sum.AskedBytes+b.AskedBytes
			}
			share := float64(sum.Values) / float64(max(sum.Questions, 1))
			addRow(&t, fmt.Sprint(of.length), m.Label, percent(share), percent(float64(sum.RightBytes)/float64(max(sum.AskedBytes, 1))), fmt.Sprint(sum.Questions), digits(x.Seconds/float64(x.Answers.Windows)), digits(float64(x.Answers.Bytes)/1e3))
			k.add(m, m.Label, 1-share)
			if m.Name == softmax.Name {
				own = share
			}
		}
		input := k.best(func(m *method) bool { return m.Set["centres"] == "input" })
		if own < 0 || input < 0 {
			continue
		}
		s := fmt.Sprintf("Recall at %d: softmax %s; clusters of the input %s%s", of.length, percent(own), percent(1-k.values[input]), verdict(1-k.values[input] >= own-0.01, "within a point of softmax"))
		if i := k.best(func(m *method) bool { return isMultipole(m) && m.Set["cells"] != "" }); i >= 0 {
			s += fmt.Sprintf("; the best codebook %s", percent(1-k.values[i]))
		}
		if i := k.best(func(m *method) bool { return m.Name == nearName }); i >= 0 {
			s += fmt.Sprintf("; the near field alone %s", percent(1-k.values[i]))
		}
		if i := k.best(func(m *method) bool { return !isMultipole(m) && !isNear(m) && m.Name != softmax.Name }); i >= 0 {
			s += fmt.Sprintf("; the best rival, %s, %s", k.labels[i], percent(1-k.values[i]))
		}
		out.find("%s.", s)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	slices.SortStableFunc(refused, func(a, b swapped) int { return cmp.Compare(a.Label, b.Label) })
	refused = slices.CompactFunc(refused, func(a, b swapped) bool { return a.Label == b.Label })
	t.Note = refusals(t.Note, refused)
	out.Tables = append(out.Tables, t)
	return nil
}

func rootOf(n int) float64 { return math.Sqrt(float64(max(n, 1))) }
