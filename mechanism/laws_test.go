package mechanism

import (
	"flag"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/conformance"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
)

var write = flag.Bool("write", false, "write what TestLaws finds to laws.txt")

// law is a promise with the check that holds a subject to it. To add one,
// append it to laws; to add a subject, append it to subjects. Then run
//
//	go test ./mechanism -run TestLaws -write
type law struct {
	name, says string
	// exempt returns why the law does not speak of a subject, "" where it does;
	// nil: it speaks of all.
	exempt func(s subject, t attention.Traits) string
	check  func(t *testing.T, s subject)
}

var laws = []law{
	{"direct", "The direct form is the textbook: outputs, denominators, gradients of inputs and parameters.",
		nil, agreement(form{attention.Direct, 0})},
	{"linear", "The linear form is the textbook, in the chunks that are planned.",
		noLinear, agreement(form{attention.Linear, 0})},
	{"chunks", "The linear form is the textbook in chunks of 1, 3 and 8 tokens.",
		noLinear, agreement(form{attention.Linear, 1}, form{attention.Linear, 3}, form{attention.Linear, 8})},
	{"auto", "The form that is chosen is the textbook.",
		nil, agreement(form{attention.Auto, 0})},
	{"steps", "A state stepped token by token is the textbook.",
		notCausal, agreement(form{attention.Step, 0})},
	{"gradients", "Gradients of inputs and parameters are finite differences, in float64: the engine's and the textbook's.",
		func(s subject, _ attention.Traits) string { return s.frozen }, derivatives},
	{"causal", "No bit of a causal output depends on a later token.",
		notCausal, inEveryForm(causality)},
	{"batch", "No bit depends on the other rows of the batch, nor on the place in it.",
		nil, inEveryForm(batchAlone)},
	{"heads", "No bit depends on the other heads.",
		overHeads, inEveryForm(headAlone)},
	{"threads", "No bit depends on the number of threads.",
		nil, threads},
	{"calls", "No bit depends on calls that run at the same time.",
		nil, sameTime},
	{"pieces", "No bit depends on the pieces in which a state is fed; absorbing and reading is stepping, except where a chunk has just closed.",
		noQueriesBefore, inPrecision(pieces)},
	{"snapshot", "A state that is saved and restored half-way, cloned or reset gives the bits of one that is not.",
		notCausal, inPrecision(restored)},
	{"merge", "A state merged behind another is the one that saw both, however it is split; merging nothing changes no bit.",
		noQueriesBefore, every(inPrecision(merged), inPrecision(mergedFading), inPrecision(mergedNothing))},
	{"segments", "A sequence cut into calls that go on from each other's state has the bits of steps, and the textbook's gradients.",
		noSegments, inPrecision(segments)},
	{"padding", "Keys beyond a key length are no keys: bits are those of the shorter input.",
		nil, inEveryForm(padding)},
	{"masked", "A masked key is an absent one.",
		masksCount, inEveryForm(removal)},
	{"nan", "NaN and Inf beyond a key length or at a masked key, of a call or a state, change no bit.",
		nil, every(inEveryForm(nanPadding), inEveryForm(nanMasked), inPrecision(nanState))},
	{"packed", "Packed sequences have the bits of the same sequences apart.",
		nil, inEveryForm(packing)},
	{"grouped", "Query heads that share a key head have the bits of the key head repeated.",
		overHeads, inEveryForm(grouping)},
	{"written", "Every element of every result is written.",
		nil, inEveryForm(written)},
	{"views", "In strided views bits are those of contiguous ones, and what lies between and around is neither read nor written.",
		nil, inEveryForm(views)},
	{"inputs", "Inputs, masks and parameters are not changed.",
		nil, inEveryForm(unchanged)},
	{"again", "Saved and Grads that were used before give the same bits; gradients of parameters are added.",
		nil, inEveryForm(again)},
	{"weights", "Rows of A on request are the textbook's, and sum to one where no eps is added.",
		noPairs, inPrecision(weights)},
	{"diagnosis", "Entropy, condition, smallest denominator and doubtful rows of each head are the textbook's.",
		noPairs, inPrecision(diagnoses)},
	{"unseen", "A query that sees no key gives 0 and is counted, and so does one that asks an empty state.",
		notCausal, every(unseen, emptyState)},
	{"extremes", "Finite input gives finite output, within the limits where it is well-conditioned; rows that are not are counted, or an error.",
		nil, inPrecision(extremes)},
	{"size", "A state keeps its size where the traits say that it streams, and only there.",
		notCausal, stateSize},
	{"foreign", "Snapshots of another mechanism, setting or precision, and damaged ones, are refused.",
		notCausal, foreign},
	{"long", "Streams of 4096 tokens stay within the limits, random or one token repeated.",
		longExempt, longStream},
}

// exclusive are laws whose checks change state that all calls share.
var exclusive = []string{"threads"}

func notCausal(_ subject, t attention.Traits) string {
	if !t.Causal {
		return "there is no causal form and no state: " + t.NoCausal
	}
	return ""
}

// noQueriesBefore exempts mechanisms in which earlier queries change the output.
func noQueriesBefore(s subject, t attention.Traits) string {
	if (s.outputs != nil || s.recalls) && t.Causal {
		return "outputs depend on the queries before, too, which absorbed tokens do not bring"
	}
	return notCausal(s, t)
}

// noPairs exempts mechanisms without an attention matrix.
func noPairs(s subject, _ attention.Traits) string {
	if s.outputs != nil {
		return "there is no attention matrix"
	}
	return ""
}

// noSegments exempts mechanisms whose calls cannot continue from a state.
func noSegments(s subject, t attention.Traits) string {
	if s.whole != nil && t.Causal && !t.Segments {
		return "whole heads are computed: a call cannot go on from a state, only a state itself can"
	}
	return notCausal(s, t)
}

// masksCount exempts mechanisms in which a masked key differs from an absent key.
func masksCount(s subject, t attention.Traits) string {
	if s.places != "" {
		return s.places
	}
	return timePasses(s, t)
}

func overHeads(s subject, _ attention.Traits) string {
	if s.book.Forget != nil {
		return "its decay is that of the key head's number"
	}
	if s.name == "longnet" {
		return "which tokens a head keeps goes by its number"
	}
	if s.name == multipole.Name && s.o.KeyHeads == 0 && s.o.Set["centres"] == "" {
		return "keys have the codebook of the first query head that shares them"
	}
	if s.learns {
		return "keys have the features of the first query head that shares them"
	}
	if s.book.Norm == oracle.GlobalCentred {
		return "rows are normalised over heads too"
	}
	return ""
}

// timePasses exempts mechanisms in which the token of a masked key has an effect.
func timePasses(s subject, _ attention.Traits) string {
	if s.book.Forget != nil {
		return "with decay the time of a masked key's token passes: laws 1 to 5 hold that against the textbook"
	}
	return ""
}

func noLinear(_ subject, t attention.Traits) string {
	if !t.Linear {
		return "it has no linear form"
	}
	return ""
}

// agreement is the law that some forms are the textbook over all shapes.
func agreement(list ...form) func(*testing.T, subject) {
	return func(t *testing.T, s subject) {
		var worst float64
		for i, sh := range shapesOf(s) {
			if s.whole != nil && sh.decay > 0 && !suite.IsLong() {
				continue // whole heads have no decay, and without it the shape is much like another
			}
			worst = max(worst, agreeAs(t, s, sh, uint64(i), list))
		}
		t.Logf("the largest error is %.2f limits", worst)
	}
}

// inPrecision runs a check as a test that the precision names.
func inPrecision(f func(*testing.T, subject)) func(*testing.T, subject) {
	return func(t *testing.T, s subject) {
		t.Run(precision, func(t *testing.T) { f(t, s) })
	}
}

// inEveryForm runs a check in every form that the subject has.
func inEveryForm(check func(*testing.T, subject, form)) func(*testing.T, subject) {
	return func(t *testing.T, s subject) {
		list := []form{{attention.Direct, 0}}
		if s.causal() {
			list = append(list, form{attention.Step, 0})
		}
		if s.linear() {
			list = append(list, form{attention.Linear, 0}, form{attention.Linear, 4})
		}
		for _, f := range list {
			t.Run(f.String()+"/"+precision, func(t *testing.T) { check(t, s, f) })
		}
	}
}

// every runs several checks.
func every(list ...func(*testing.T, subject)) func(*testing.T, subject) {
	return func(t *testing.T, s subject) {
		for _, check := range list {
			check(t, s)
		}
	}
}

// TestLaws holds subjects to every law, and the committed matrix to the exemptions. The
// subjects of a law are held to it at the same time: with -long or -write all of them,
// by default the first of each kind to which the law applies.
func TestLaws(t *testing.T) {
	all := subjects()
	var found lawMatrix
	var traits []attention.Traits
	for _, s := range all {
		found.Subjects = append(found.Subjects, s.label)
		m, _ := build(t, s, 1)
		traits = append(traits, m.Traits())
	}
	ran := 0              // cells that -run leaves in
	var held atomic.Int64 // cells that hold, that a law exempts, or of further subjects
	for _, l := range laws {
		row := foundLaw{Name: l.name, Statement: l.says}
		met := kinds{}
		t.Run(l.name, func(t *testing.T) {
			for i, s := range all {
				if l.exempt != nil {
					if why := l.exempt(s, traits[i]); why != "" {
						if row.Exemptions == nil {
							row.Exemptions = map[string]string{}
						}
						row.Exemptions[s.label] = why
						held.Add(1)
						continue
					}
				}
				if !met.isNew(s) && !suite.IsLong() && !*write {
					held.Add(1)
					continue
				}
				t.Run(s.label, func(t *testing.T) { // unless -run leaves it out
					ran++
					if !slices.Contains(exclusive, l.name) {
						t.Parallel()
					}
					if l.check(t, s); !t.Failed() {
						held.Add(1)
					}
				})
			}
		})
		found.Laws = append(found.Laws, row)
	}
	if ran == 0 {
		t.Fatal("no law ran: -run names none, a further subject without -long, or a row that is no subject of conformance_test.go yet")
	}
	if held.Load() != int64(len(laws)*len(all)) {
		t.Skip("not every law was held for every subject: the matrix is not compared")
	}
	if testing.Verbose() {
		t.Logf("\n%v", found)
	}
	if *write {
		writeLaws(t, found)
	} else if found.String() != conformance.Text {
		t.Error("laws.txt is not what was found: run go test ./mechanism -run TestLaws -write")
	}
}

// writeLaws writes laws.txt.
func writeLaws(t *testing.T, m lawMatrix) {
	t.Helper()
	if err := os.WriteFile("../internal/conformance/laws.txt", []byte(m.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
