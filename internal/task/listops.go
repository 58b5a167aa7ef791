package task

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/rng"
)

// Tokens of expressions. 0 is padding.
const (
	listDigit = 1  // digit 0; the other nine follow
	listEnd   = 11 // ]
	listMin   = 12
	listMax   = 13
	listMed   = 14
	listSum   = 15 // modulo 10
	listFirst = 16
	listLast  = 17
)

var listNames = [...]string{"", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "]", "[MIN", "[MAX", "[MED", "[SM", "[FIRST", "[LAST"}

// Bounds of the trees of both distributions. The root has depth 1.
const (
	listDepth = 10
	listArgs  = 10
)

// ListOps evaluates nested expressions to a digit, in the distribution of the Long Range Arena
// (Nangia and Bowman 2018; Tay et al. 2021). Above depth 10 a node is an operator with
// probability 1/4, otherwise a digit. Operators MIN, MAX, MED (mean of the middle two,
// truncated) and SM (sum modulo 10) have 2 to 10 arguments. Expressions outside the range of
// lengths are rejected. A length counts each digit once and each operator twice.
type ListOps struct {
	LowerBound, UpperBound int // exclusive bounds of lengths
	Seed                   uint64
	rows                   [3][]dataset.Expression // by split; nil: generated
}

var listOpsSettings = []Setting{
	{"from", "generate", "generate, or files: basic_{train,val,test}.tsv of the data set"},
	{"above", "500", "lengths are above this"},
	{"below", "2000", "lengths are below this"},
}

func openListOps(o *settingsReader) (Source, error) {
	if o.oneOf("from", "generate", "files") == "files" {
		return OpenListOps(filepath.Join(o.Folder, "listops"))
	}
	return NewListOps(ListOps{LowerBound: o.int("above"), UpperBound: o.int("below"), Seed: o.Seed})
}

// NewListOps returns a generator of the samples of task t. It returns an error if the bounds of lengths
// are out of range.
func NewListOps(t ListOps) (*ListOps, error) {
	if err := checkRange("below", t.UpperBound, 6, 1<<20); err != nil {
		return nil, err
	}
	if err := checkRange("above", t.LowerBound, 3, t.UpperBound-2); err != nil {
		return nil, err
	}
	return &ListOps{LowerBound: t.LowerBound, UpperBound: t.UpperBound, Seed: t.Seed}, nil
}

// OpenListOps reads basic_train.tsv, basic_val.tsv and basic_test.tsv, plain or gzip, in a
// folder. It returns an error if a file is missing or an expression is malformed.
func OpenListOps(folder string) (*ListOps, error) {
	t := &ListOps{LowerBound: 500, UpperBound: 2000}
	for split, name := range []string{"train", "val", "test"} {
		path, err := findFile(folder, "basic_"+name+".tsv", "basic_"+name+".tsv.gz")
		if err != nil {
			return nil, err
		}
		if t.rows[split], err = dataset.ReadFile(path, dataset.ReadExpressions); err != nil {
			return nil, err
		}
		for i, row := range t.rows[split] {
			tokens, err := ParseExpression(nil, row.Source)
			if err != nil {
				return nil, fmt.Errorf("%s: row %d: %w", path, i, err)
			}
			if slices.Max(tokens) >= listFirst {
				return nil, fmt.Errorf("%s: row %d: operators FIRST and LAST are not of this task", path, i)
			}
		}
	}
	return t, nil
}

// Spec returns the specification of the samples. One of the 17 tokens is LRA's unknown token,
// which does not occur.
func (t *ListOps) Spec() Spec {
	s := Spec{Name: "listops", Kind: Class, Metric: Accuracy, Vocab: 17, Length: t.UpperBound - 1, Parts: 1, Classes: 10,
		Count: [3]int{Endless, Endless, Endless}}
	for split, rows := range t.rows {
		if rows != nil {
			s.Count[split] = len(rows)
		}
	}
	return s
}

// Sample overwrites s with an expression and its value. It returns an error if the split has
// no sample i.
func (t *ListOps) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	if rows := t.rows[split]; rows != nil {
		var err error
		resetSample(s)
		s.Tokens, err = ParseExpression(s.Tokens, rows[i].Source)
		s.Class = int32(rows[i].Target)
		return err
	}
	t.draw(s, t.LowerBound, t.UpperBound, newDraws(t.Seed, split, i))
	return nil
}

// DrawWindow overwrites s with a training expression of at most length tokens, which depends on key
// and i alone. The least number of tokens has the same ratio to length as the task's own bounds
// have to each other: with bounds of 500 and 2000, more than a quarter of length. DrawWindow
// returns an error if length is less than 4 or not below UpperBound, if the bounds leave no length,
// or if the expressions are read from files.
func (t *ListOps) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	above := t.LowerBound * (length + 1) / t.UpperBound
	switch {
	case t.rows[Train] != nil:
		return errors.New("expressions of files have the lengths they have; use from=generate")
	case length < 4 || length >= t.UpperBound || above >= length:
		return fmt.Errorf("%d tokens; 4 to %d are needed, in proportion to lengths above %d and below %d", length, t.UpperBound-1, t.LowerBound, t.UpperBound)
	}
	t.draw(s, above, length+1, &randomDraws{key: key.Fold(i)})
	return nil
}

// draw overwrites s with an expression of more than above and fewer than below tokens.
func (t *ListOps) draw(s *Sample, above, below int, d *randomDraws) {
	resetSample(s)
	for len(s.Tokens) <= above || len(s.Tokens) >= below {
		s.Tokens = growExpression(s.Tokens[:0], d, 1, below)
	}
	s.Class = int32(evaluateExpression(s.Tokens, false))
}

// growExpression appends a random expression. It stops early once there are most tokens.
func growExpression(tokens []int32, d *randomDraws, depth, most int) []int32 {
	if len(tokens) >= most {
		return tokens
	}
	if depth >= listDepth || d.float() >= 0.25 {
		return append(tokens, listDigit+int32(d.intn(10)))
	}
	tokens = append(tokens, listMin+int32(d.intn(4)))
	for range 2 + d.intn(listArgs-1) {
		tokens = growExpression(tokens, d, depth+1, most)
	}
	return append(tokens, listEnd)
}

// Baselines scores three rules: the commonest class of all samples, of those with the same root
// operator, and of those with the same root operator and the same decisive digit. It returns the
// errors of Sample.
func (t *ListOps) Baselines(n int) ([]Baseline, error) { return listBaselines(t, n) }

// listBaselines scores the baselines of ListOps and ListOps6.
func listBaselines(src Source, n int) ([]Baseline, error) {
	return adviseGrowth(scoreTables(src, n, majority,
		keyTable{"root operator", func(s *Sample) [2]int32 { return [2]int32{s.Tokens[0]} }},
		keyTable{"root operator and its digits", func(s *Sample) [2]int32 { return rootDigits(s.Tokens) }},
	))
}

// rootDigits returns the root operator and its decisive digit: the least for MIN, the greatest
// for MAX, the first for FIRST, the last for LAST. The digit is -1 for other operators, or if
// no argument of the root decides.
func rootDigits(tokens []int32) [2]int32 {
	key := [2]int32{tokens[0], -1}
	depth := 0
	for i, t := range tokens {
		switch {
		case t == listEnd:
			depth--
		case t >= listMin:
			depth++
		case depth == 1:
			digit := t - listDigit
			switch tokens[0] {
			case listMin:
				if key[1] < 0 || digit < key[1] {
					key[1] = digit
				}
			case listMax:
				key[1] = max(key[1], digit)
			case listFirst:
				if i == 1 {
					key[1] = digit
				}
			case listLast:
				if i == len(tokens)-2 {
					key[1] = digit
				}
			}
		}
	}
	return key
}

// ParseExpression appends the tokens of a written expression to tokens: digits, ], [MIN, [MAX,
// [MED, [SM, [FIRST and [LAST, separated by blanks. It ignores parentheses. It returns an error if
// source is not one complete expression.
func ParseExpression(tokens []int32, source string) ([]int32, error) {
	from := len(tokens)
	depth := 0
	for word := range strings.FieldsSeq(source) {
		if word == "(" || word == ")" {
			continue
		}
		i := slices.Index(listNames[1:], word) + 1
		if i == 0 {
			return nil, fmt.Errorf("expression: %.20q is no digit, operator or ]", word)
		}
		if len(tokens) > from && depth == 0 {
			return nil, fmt.Errorf("expression: %q follows its end", word)
		}
		if i == listEnd {
			if depth--; depth < 0 || tokens[len(tokens)-1] >= listMin {
				return nil, fmt.Errorf("expression: token %d, ], closes no operator with arguments", len(tokens)-from)
			}
		} else if i >= listMin {
			depth++
		}
		tokens = append(tokens, int32(i))
	}
	if depth > 0 || len(tokens) == from {
		return nil, fmt.Errorf("expression: %d operators are not closed in %d tokens", depth, len(tokens)-from)
	}
	return tokens, nil
}

// AppendExpression appends the text of tokens to text, in the format of LRA's files: with a pair of
// parentheses for each argument and each end.
func AppendExpression(text []byte, tokens []int32) []byte {
	// An operator is preceded by one parenthesis per argument and one for its end.
	args := make([]int, len(tokens))
	var open []int
	for i, t := range tokens {
		if t == listEnd {
			open = open[:len(open)-1]
			continue
		}
		if len(open) > 0 {
			args[open[len(open)-1]]++
		}
		if t >= listMin {
			open = append(open, i)
		}
	}
	depth := 0
	for i, t := range tokens {
		if i > 0 {
			text = append(text, ' ')
		}
		if t >= listMin {
			for range args[i] + 1 {
				text = append(text, "( "...)
			}
			depth++
			text = append(text, listNames[t]...)
			continue
		}
		text = append(text, listNames[t]...)
		if t == listEnd {
			text = append(text, " )"...)
			depth--
		}
		if depth > 0 {
			text = append(text, " )"...)
		}
	}
	return text
}

// evaluateExpression returns the value of an expression. The median of an even number of
// arguments is the upper of the middle two if upper is set, otherwise their truncated mean.
func evaluateExpression(tokens []int32, upper bool) int {
	var operators []int32
	var starts []int // index of the first argument of each
	var values []int
	for _, t := range tokens {
		switch {
		case t >= listMin:
			operators, starts = append(operators, t), append(starts, len(values))
		case t == listEnd:
			last := len(operators) - 1
			args := values[starts[last]:]
			v := applyOperator(operators[last], args, upper)
			values = append(values[:starts[last]], v)
			operators, starts = operators[:last], starts[:last]
		default:
			values = append(values, int(t-listDigit))
		}
	}
	return values[0]
}

// applyOperator returns the value of an operator. It may reorder args.
func applyOperator(operator int32, args []int, upper bool) int {
	switch operator {
	case listMin:
		return slices.Min(args)
	case listMax:
		return slices.Max(args)
	case listFirst:
		return args[0]
	case listLast:
		return args[len(args)-1]
	case listMed:
		slices.Sort(args)
		n := len(args)
		if upper || n%2 == 1 {
			return args[n/2]
		}
		return (args[n/2-1] + args[n/2]) / 2
	}
	sum := 0
	for _, x := range args {
		sum += x
	}
	return sum % 10
}
