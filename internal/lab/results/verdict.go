package results

import "strings"

// verdict compares the result of a row with the published claim.
type verdict struct {
	claim   string // reached, partly reached, not reached, or "" where no claim is published
	reason  string // why the claim is not reached, or how it is
	finding string // beginning of the finding that stands for the row on the page of results
}

// verdicts are by the names of rows.
var verdicts = map[string]verdict{
	"fast-fig2":             {"not reached", "500 images and five seeds show no order of the dropout forms", "Better than no dropout"},
	"fast-fig3":             {"reached", "Fastmax is linear in N, and Fastmax1 is ahead at every measured N", "Causal Fastmax"},
	"fast-fig4":             {"partly reached", "columns on digits and the diagonal on text weigh less with Fastmax; on digits its published form has the lower entropy; one seed", "text: the drawn heads"},
	"fast-fig5":             {"partly reached", "bytes have the published scores but linear's, ListOps 2 points less and with order 1 the commonest class, and simple baselines pass both; pixels stay below theirs, level with a simple baseline; three of five tasks, one seed", "text at equal"},
	"listops":               {"partly reached", "softmax, order 2 and Informer are within a point of the published scores; order 1 keeps to the commonest class, linear has 20 points more than published; Informer, Reformer, Performer and Linformer after half an hour; a rule of the operator and its digits has more than all; one seed", "listops at equal updates"},
	"fast-table1":           {"not reached", "three of five tasks with short inputs and few updates; all models stay below a trivial baseline", "image:"},
	"fast-table2":           {"partly reached", "Fastmax2 exceeds every published ratio; fastmax 1, another function, reaches 0.83 to 0.98 of Fastmax1's", "fastmax 2 over softmax is"},
	"fast-fig6":             {"partly reached", "the order by second is as published; images stay below the nearest mean, and pairs of films replace the Retrieval task", "next-character, N"},
	"fast-kernel":           {"partly reached", "the kernel is near exp for small scores only", "T_2 is within"},
	"fast-locality":         {"partly reached", "Fastmax is far less localised on text; on digits its columns weigh less, and entropies agree; one seed", "text: entropy"},
	"fast-gradients":        {"not reached", "the printed bound does not hold; a corrected bound does", "The claimed bound"},
	"taylorshift-crossover": {"partly reached", "N1 follows its formula; N0 is measured at 0.54 to 0.71 of the published formula, whose features are not packed, where 1.3 to 2.1 times it is published", "N1 counted"},
	"taylorshift-scaling":   {"partly reached", "two of five printed sizes after normalisation lack a factor d", "After normalisation QKᵀV"},
	"taylorshift-heads":     {"partly reached", "speed and memory behave as published; heads of half the width have 31.5 to 33.8 %, within the noise of one seed", "From 4 to 64 heads"},
	"taylorshift-accuracy":  {"not reached", "three of five columns, smaller models, one seed: TaylorShift has as much as softmax on expressions and less on pixels and bytes", "listops6: eva"},
	"linear-fig1":           {"partly reached", "for twice the tokens linear attention takes 2.14 times as long, LSH of 1, 4 and 8 rounds 2.00, 2.27 and 2.45 times", "linear is faster"},
	"linear-table1":         {"partly reached", "order and speed are as published, bits are not: a smaller model and 30,000 images; images a second are of one core beside other work; the LSH rows are missing", "softmax 1.126"},
	"linear-table2":         {"partly reached", "order and speed are as published, bits are not: a smaller model and 2,000 images; the LSH rows are missing", "softmax 5.283"},
	"linear-latency":        {"reached", "linear attention is the fastest of three ways to draw an image", "mnist: an image"},
	"linear-copy":           {"not reached", "after 1000 updates linear attention has an accuracy of 0.631 where softmax has 1.000", "copy:"},
	"slides-shapes":         {"reached", "attention solves the task, convolutions alone do not", "shapes:"},
	"mqar":                  {"partly reached", "32 pairs are recalled by softmax, and fewer by maps of few features; with 128 in 2048 tokens softmax is at chance after 1600 updates unless it has the norm of heads", "At the largest K"},
	"needle":                {"", "no table of this setting is published; 3000 updates, one seed", "Windows of 4096"},
	"bytelm":                {"", "no table of this setting is published; five million bytes, one size of model", "enwik8-1k, bits per byte"},
	"carry":                 {"reached", "the error of rounded sums grows, that with compensation does not", "At 4194304 tokens"},
}

// title returns the first line of a row's page. It says whether the claim is reached.
func (v *verdict) title(row string) string {
	if v.claim == "" {
		return "# " + row + ": " + v.reason
	}
	return "# " + row + ": claim " + v.claim + ": " + v.reason
}

// headline returns the finding of a page that stands for its row, or "".
func (v *verdict) headline(text string) string {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, "- "+v.finding); found && v.finding != "" {
			first, _, _ := strings.Cut(v.finding+strings.TrimRight(rest, ".\n"), ". ")
			return first
		}
	}
	return ""
}
