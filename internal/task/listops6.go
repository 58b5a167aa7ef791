package task

import "github.com/farfield-ml/farfield/rng"

// ListOps6 is the variant of ListOps in the code of TaylorShift (Nauen et al. 2024), with the
// additional operators FIRST and LAST. An expression has exactly a length drawn uniformly from
// [Min, Max]. It grows by replacing random digits by operators over digits, down to depth 10.
// The median of an even number of arguments is the upper of the middle two. Scores are not
// comparable with scores of ListOps.
type ListOps6 struct {
	Min, Max int // inclusive bounds of lengths
	Seed     uint64
}

var listOps6Settings = []Setting{
	{"min", "500", "least length"},
	{"max", "2000", "greatest length"},
}

func openListOps6(o *settingsReader) (Source, error) {
	return NewListOps6(ListOps6{Min: o.int("min"), Max: o.int("max"), Seed: o.Seed})
}

// NewListOps6 returns a generator of the samples of task t. It returns an error if the bounds of lengths
// are out of range.
func NewListOps6(t ListOps6) (*ListOps6, error) {
	if err := checkRange("max", t.Max, 8, 1<<16); err != nil {
		return nil, err
	}
	if err := checkRange("min", t.Min, 8, t.Max); err != nil {
		return nil, err
	}
	return &t, nil
}

// Spec returns the specification of the samples.
func (t *ListOps6) Spec() Spec {
	return Spec{Name: "listops6", Kind: Class, Metric: Accuracy, Vocab: 18, Length: t.Max, Parts: 1, Classes: 10,
		Count: [3]int{Endless, Endless, Endless}}
}

// listNode is an operator of a tree. An argument is a digit, or ^i for node i.
type listNode struct {
	operator int32
	depth    int
	args     []int
}

// Sample overwrites s with an expression and its value. It returns an error if the split has
// no sample i.
func (t *ListOps6) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	t.draw(s, t.Min, t.Max, newDraws(t.Seed, split, i))
	return nil
}

// DrawWindow overwrites s with a training expression of at most length tokens, which depends on key
// and i alone. The least number of tokens is in proportion to Min, but at least 8. DrawWindow
// returns an error if length is less than 8 or more than Max.
func (t *ListOps6) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	if err := checkRange("length", length, 8, t.Max); err != nil {
		return err
	}
	t.draw(s, max(8, t.Min*length/t.Max), length, &randomDraws{key: key.Fold(i)})
	return nil
}

// draw overwrites s with an expression of least to most tokens.
func (t *ListOps6) draw(s *Sample, least, most int, d *randomDraws) {
	resetSample(s)
	length := least + d.intn(most-least+1)
	for {
		if nodes := growTree(d, length); nodes != nil {
			s.Tokens = appendNode(s.Tokens, nodes, 0)
			break
		}
	}
	s.Class = int32(evaluateExpression(s.Tokens, true))
}

// growTree returns the operators of an expression with a length, the root first. It returns
// nil if the tree cannot reach the length.
func growTree(d *randomDraws, length int) []listNode {
	type place struct{ node, arg int }
	var nodes []listNode
	var digits []place // arguments that may become operators
	size := 0
	// operator appends an operator over digits, of at most room tokens.
	operator := func(depth, room int) {
		n := listNode{operator: listMin + int32(d.intn(6)), depth: depth}
		n.args = make([]int, 2+d.intn(min(room-2, listArgs)-1))
		for k := range n.args {
			n.args[k] = d.intn(10)
			if depth <= listDepth {
				digits = append(digits, place{len(nodes), k})
			}
		}
		nodes = append(nodes, n)
		size += len(n.args) + 2
	}
	operator(1, length-2)
	for size < length-4 {
		if len(digits) == 0 {
			return nil
		}
		k := d.intn(len(digits))
		p := digits[k]
		digits[k] = digits[len(digits)-1]
		digits = digits[:len(digits)-1]
		nodes[p.node].args[p.arg] = ^len(nodes)
		operator(nodes[p.node].depth+1, length-size)
		size--
	}
	// Fill up with digits; all free places have the same probability.
	for ; size < length; size++ {
		slots := 0
		for _, n := range nodes {
			if n.depth <= listDepth {
				slots += listArgs - len(n.args)
			}
		}
		if slots == 0 {
			return nil
		}
		at := d.intn(slots)
		for k := range nodes {
			n := &nodes[k]
			if n.depth > listDepth {
				continue
			}
			if at -= listArgs - len(n.args); at < 0 {
				n.args = append(n.args, d.intn(10))
				break
			}
		}
	}
	return nodes
}

// appendNode appends the tokens of node i and its arguments.
func appendNode(tokens []int32, nodes []listNode, i int) []int32 {
	tokens = append(tokens, nodes[i].operator)
	for _, a := range nodes[i].args {
		if a < 0 {
			tokens = appendNode(tokens, nodes, ^a)
		} else {
			tokens = append(tokens, listDigit+int32(a))
		}
	}
	return append(tokens, listEnd)
}

// Baselines scores the baselines of ListOps. It returns the errors of Sample.
func (t *ListOps6) Baselines(n int) ([]Baseline, error) { return listBaselines(t, n) }
