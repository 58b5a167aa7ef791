package exchange

import (
	"fmt"
	"strings"
)

// NearDoesAsWell reports whether the near field without a far field does as well: it meets the
// wish, or, if there is none, its loss is at most half as much again as with the far field.
func (x *Result) NearDoesAsWell() bool {
	losses := [][2]float64{{x.NearAlone.Loss(), x.Whole.Loss()}}
	if x.Other != nil {
		losses = append(losses, [2]float64{x.OtherNear.Loss(), x.Other.Loss()})
	}
	for _, l := range losses {
		if x.Wish != nil && l[0] > *x.Wish || x.Wish == nil && l[0] > 1.5*max(l[1], 0)+1e-3 {
			return false
		}
	}
	return true
}

// Verdict returns the first line of the page: whether the far field is needed, and whether the wish
// is met.
func (x *Result) Verdict() string {
	var b strings.Builder
	near := x.Choice.field().keys(1<<30, x.Measure == "nats")
	switch {
	case len(x.Exchanged) == 0:
		b.WriteString("No layer can be exchanged within the wish: all keep their own function.")
	case x.NearDoesAsWell():
		fmt.Fprintf(&b, "The near field alone does as well here: %v with %d near keys and no far field, %v with it. On these texts the far field is not needed.", x.NearAlone, near, x.Whole)
	default:
		fmt.Fprintf(&b, "The far field counts: %v, and %v with the %d near keys alone.", x.Whole, x.NearAlone, near)
	}
	switch {
	case x.Wish == nil:
	case !x.Meets:
		fmt.Fprintf(&b, " The wish is not met: %s.", x.formatWish())
	case len(x.Exact) > 0:
		fmt.Fprintf(&b, " The wish (%s) is met with %s exact.", x.formatWish(), FormatLayers(x.Exact))
	default:
		fmt.Fprintf(&b, " The wish (%s) is met.", x.formatWish())
	}
	return b.String()
}

// pays returns the least measured length from which on the exchanged layer takes less time than the
// trained one, or 0.
func (x *Result) pays() int {
	from := 0
	for i := len(x.Times) - 1; i >= 0 && x.Times[i].Choice < x.Times[i].Trained; i-- {
		from = x.Times[i].Tokens
	}
	return from
}

// paysLine says from which length on the exchange saves time.
func (x *Result) paysLine() string {
	last := x.Times[len(x.Times)-1].Tokens
	switch from := x.pays(); from {
	case 0:
		return fmt.Sprintf("In the times measured here, up to %d tokens, the exchange saves no time.", last)
	case x.Times[0].Tokens:
		return fmt.Sprintf("In the times measured here the exchanged layer is faster from %d tokens on, or fewer.", from)
	default:
		return fmt.Sprintf("In the times measured here the exchanged layer is faster from %d tokens on, and slower below.", from)
	}
}

func (x *Result) formatWish() string {
	if x.Measure == "nats" {
		return fmt.Sprintf("at most %.4g nats a token more", *x.Wish)
	}
	return fmt.Sprintf("a cosine of %.4g", 1-*x.Wish)
}

// FormatLayers names layers, as layers 0-3,5.
func FormatLayers(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("layer %d", list[0])
	}
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, fmt.Sprint(list[i]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return "layers " + strings.Join(parts, ",")
}

// Page returns the page of the result in Markdown. title names the model.
func (x *Result) Page(title string) []byte {
	var b strings.Builder
	line := func(form string, args ...any) { fmt.Fprintf(&b, form+"\n", args...) }
	line("%s\n", x.Verdict())
	if from := x.pays(); len(x.Times) > 0 && (from == 0 || from > x.Length) {
		line("%s\n", x.paysLine())
	}
	line("# %s, exchanged\n", title)
	books := fmt.Sprintf("The codebooks are made of the keys of %d tokens, in windows of %d", x.Tokens, x.Window)
	if x.Choice.Tol > 0 {
		books = fmt.Sprintf("There are no codebooks; windows have %d tokens", x.Window)
	}
	line("%s: %v. %s. %s. All losses are measured on %d held-out windows.\n", FormatLayers(x.Exchanged), x.Choice, x.costLine(), books, x.HeldOut)
	line("Why this choice: %s.\n", x.Why)
	line("## The whole model against the trained one\n")
	kinds := []struct {
		name        string
		whole, near *Quality
	}{{"held-out texts", &x.Whole, &x.NearAlone}, {"texts of another kind", x.Other, x.OtherNear}}
	if x.Measure == "nats" {
		line("| texts | trained, nats a token | exchanged | near field alone |\n|---|---:|---:|---:|")
		for _, k := range kinds {
			if k.whole != nil {
				line("| %s | %.4f | %+.4f | %+.4f |", k.name, k.whole.TrainedNats, k.whole.Nats, k.near.Nats)
			}
		}
	} else {
		line("| texts | exchanged: cosine of vectors, mean (least) | of rows of tokens | near field alone: cosine of vectors (least) | of rows |\n|---|---:|---:|---:|---:|")
		for _, k := range kinds {
			if k.whole != nil {
				line("| %s | %.4f (%.4f) | %.4f | %.4f (%.4f) | %.4f |", k.name, k.whole.Cosine, k.whole.LeastCosine, k.whole.RowCosine, k.near.Cosine, k.near.LeastCosine, k.near.RowCosine)
			}
		}
	}
	if x.UpdatesNote != "" {
		line("\n%s", x.UpdatesNote)
	}
	x.fitTable(line)
	line("\nA cosine or a loss near that of the trained model does not prove that a use needs the far field. Compare the model with and without it in your own use.\n")
	unit := "1 - cosine"
	if x.Measure == "nats" {
		unit = "nats a token"
	}
	line("## Layers\n\nThe loss (%s) of the model in which the layer alone is exchanged, the share of a query's weight that lies on far keys in the trained model, and the root mean square distance of held-out keys from their centres.\n", unit)
	line("| layer | function | loss alone | near field alone | far share | distance | multiply-adds at %d | state, bytes |\n|---:|---|---:|---:|---:|---:|---:|---:|", x.Length)
	for _, l := range x.Layers {
		function := Name
		if l.Exact {
			function = "its own"
		}
		line("| %d | %s | %.5f | %.5f | %.1f %% | %.3f | %.3g | %.0f |", l.Number, function, l.Alone, l.NearAlone, 100*l.FarShare, mean(l.Distances), l.FLOPs/2, l.State)
	}
	if i := wildest(x.Layers); i >= 0 {
		line("\nWeights of far keys can run wild at order %d: below -1 times the order the exponent of a key, beside the mean of its cell, gives a weight that is negative (order 1) or larger than that of the mean (order 2). On a held-out text such weights are at most %.2f %% of the weight of a query, in layer %d.", x.Choice.Order, 100*x.Layers[i].WildShare, x.Layers[i].Number)
	}
	if len(x.Trials) > 0 {
		line("\n## What was tried\n\n| centres | order | block | window | multiply-adds at %d | held out | another kind |\n|---:|---:|---:|---:|---:|---:|---:|", x.Length)
		for _, t := range x.Trials {
			other := ""
			if t.Other != nil {
				other = t.Other.String()
			}
			if t.Tol > 0 {
				line("| of the input, tol %g, %.0f %% of the pairs | 0 | | | %.3g | %v | %s |", t.Tol, 100*t.Pairs, t.Cost/2, t.Quality, other)
				continue
			}
			fit := ""
			switch {
			case t.Updates > 0:
				fit = fmt.Sprintf(", fitted, %d updates", t.Updates)
			case t.Fitted:
				fit = ", fitted"
			}
			line("| %d cells%s | %d | %d | %d | %.3g | %v | %s |", t.Cells, fit, t.Order, t.Block, t.Window, t.Cost/2, t.Quality, other)
		}
	}
	if len(x.Times) > 0 {
		line("\n## Attention of one layer over length\n")
		decoder := x.Times[0].CacheBytes > 0
		head, rule := "| tokens | trained, ms | exchanged, ms | near field alone, ms |", "|---:|---:|---:|---:|"
		if decoder {
			head, rule = head+" cache, bytes | state, bytes |", rule+"---:|---:|"
		}
		line("%s\n\n%s\n%s", x.paysLine(), head, rule)
		for _, t := range x.Times {
			more := ""
			if decoder {
				more = fmt.Sprintf(" %.0f | %.0f |", t.CacheBytes, t.StateBytes)
			}
			line("| %d | %.3g | %.3g | %.3g |%s", t.Tokens, 1e3*t.Trained, 1e3*t.Choice, 1e3*t.NearAlone, more)
		}
	}
	return []byte(b.String())
}

// fitTable writes what the fit and updates gain: nothing where there is no fit.
func (x *Result) fitTable(line func(form string, args ...any)) {
	if len(x.Unfitted) == 0 {
		return
	}
	line("\nFitted: each cell is expanded about the mean query that the trained model sends to it, taken from %d tokens, and not about 0. In the last column no far key of the input is read: each query gets the mean far field of those tokens in their place.\n", x.FitTokens)
	head, rule, before := "cells, fitted", "---:", func(int) string { return "" }
	if x.Updates > 0 {
		head, rule, before = "cells, fitted, after updates | before", "---:|---:", func(i int) string { return fmt.Sprintf(" %v |", x.Untuned[i]) }
	}
	line("| texts | %s | not fitted | near field alone | near field, far field of the mean |\n|---|%s|---:|---:|---:|", head, rule)
	line("| held-out texts | %v |%s %v | %v | %v |", x.Whole, before(0), x.Unfitted[0], x.NearAlone, x.NearFitted[0])
	if x.Other != nil {
		line("| texts of another kind | %v |%s %v | %v | %v |", *x.Other, before(1), x.Unfitted[1], *x.OtherNear, x.NearFitted[1])
	}
}

// costLine compares the costs of attention.
func (x *Result) costLine() string {
	s := fmt.Sprintf("Attention of %d tokens takes %.3g multiply-adds in these layers, %.3g in the trained model, %.3g with the near field alone", x.Length, x.ChoiceFLOPs/2, x.TrainedFLOPs/2, x.NearFLOPs/2)
	if x.ChoiceFLOPs > x.TrainedFLOPs {
		s += ": at this length the exchange does not pay"
	}
	return s
}

func mean(list []float64) float64 {
	var sum float64
	for _, x := range list {
		sum += x
	}
	return sum / float64(max(len(list), 1))
}

// wildest returns the index of the exchanged layer with the largest share of wild weights; -1: none has any.
func wildest(list []Layer) int {
	at, most := -1, 0.0
	for i, l := range list {
		if !l.Exact && l.WildShare > most {
			at, most = i, l.WildShare
		}
	}
	return at
}
