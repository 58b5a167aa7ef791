package comm

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/farfield-ml/farfield/tensor"
)

// Tree adds arrays, called leaves, in an order that depends only on their number: first
// neighbours, then neighbouring pairs, and so on. If the number is not a power of two, the
// remaining sums are added from the last to the first. Every sum is rounded. The bits of
// the result do not depend on the number of ranks.
//
// Each rank has consecutive leaves, which follow the leaves of the rank before.
type Tree struct {
	nextLeaf int              // leaf
	nodes    []treeNode       // from left to right
	free     [][]tensor.Float // memory

	sent, received []tensor.Float // memory, too
}

// treeNode is the sum of size leaves from first on: size is a power of two that divides
// first.
type treeNode struct {
	first, size int
	sum         []tensor.Float
}

// Reset removes all leaves. The next leaf will be number first among the leaves of all ranks.
func (t *Tree) Reset(first int) {
	for _, n := range t.nodes {
		t.free = append(t.free, n.sum)
	}
	t.nodes, t.nextLeaf = t.nodes[:0], first
}

// AddLeaf adds the next leaf x [n]. All leaves have the same length.
func (t *Tree) AddLeaf(x []tensor.Float) {
	var sum []tensor.Float
	if i := len(t.free) - 1; i >= 0 && cap(t.free[i]) >= len(x) {
		sum, t.free = t.free[i][:len(x)], t.free[:i]
	} else {
		sum = make([]tensor.Float, len(x))
	}
	copy(sum, x)
	t.pushNode(treeNode{t.nextLeaf, 1, sum})
	t.nextLeaf++
}

// pushNode appends a node and merges halves of larger nodes.
func (t *Tree) pushNode(n treeNode) {
	t.nodes = append(t.nodes, n)
	for len(t.nodes) > 1 {
		a, b := t.nodes[len(t.nodes)-2], t.nodes[len(t.nodes)-1]
		if a.size != b.size || a.first%(2*a.size) != 0 {
			return
		}
		t.mergeLast()
	}
}

// mergeLast adds the last node to the node before it.
func (t *Tree) mergeLast() {
	last := len(t.nodes) - 1
	a, b := &t.nodes[last-1], t.nodes[last]
	for i, y := range b.sum {
		a.sum[i] += y
	}
	a.size += b.size
	t.free = append(t.free, b.sum)
	t.nodes = t.nodes[:last]
}

// nodeSizes returns the sizes of the nodes of leaves lo ≤ i < hi.
func nodeSizes(lo, hi int) (sizes []int) {
	for lo < hi {
		size := 1 << (bits.Len(uint(hi-lo)) - 1)
		if lo > 0 {
			size = min(size, lo&-lo)
		}
		sizes = append(sizes, size)
		lo += size
	}
	return sizes
}

// SumRanks sets x [n] to the sum of the leaves of all ranks, and removes them. part returns the
// range lo ≤ i < hi of the leaves of a rank, which must not be empty for all ranks. SumRanks
// returns an error if this rank's leaves are not its part, and an error of the transport.
func (t *Tree) SumRanks(c *Comm, x []tensor.Float, part func(rank int) (lo, hi int)) error {
	const name = "tree"
	defer t.Reset(0)
	if c == nil {
		t.foldNodes(x)
		return nil
	}
	var all []treeNode // of all ranks, without their sums
	counts, most := make([]int, c.Size()), 1
	for r := range counts {
		lo, hi := part(r)
		for _, size := range nodeSizes(lo, hi) {
			all = append(all, treeNode{first: lo, size: size})
			lo += size
			counts[r]++
		}
		most = max(most, counts[r])
	}
	if own := counts[c.Rank()]; own != len(t.nodes) {
		return c.wrapError(name, fmt.Errorf("has %d sums, its leaves make %d", len(t.nodes), own))
	}
	// The bytes that a rank sends and receives at a time are bounded, as with AllReduce.
	return c.inPieces(name, len(x), sizeOf[tensor.Float]()*max(most, (len(all)+c.Size()-1)/c.Size()), func(lo, hi int) error {
		share := func(r int) (int, int) { return lo + r*(hi-lo)/c.Size(), lo + (r+1)*(hi-lo)/c.Size() }
		send := t.sent[:0]
		to, from, each := make([]int, c.Size()), make([]int, c.Size()), make([]int, c.Size())
		first, last := share(c.Rank())
		for r := range to {
			a, b := share(r)
			for _, n := range t.nodes {
				send = append(send, n.sum[a:b]...)
			}
			each[r] = (b - a) * sizeOf[tensor.Float]()
			to[r], from[r] = len(t.nodes)*each[r], counts[r]*(last-first)*sizeOf[tensor.Float]()
		}
		t.sent = send
		size := len(all) * (last - first)
		t.received = slices.Grow(t.received[:0], size)[:size]
		received := t.received
		if err := c.exchangeParts(name, bytesOf(send), to, bytesOf(received), from); err != nil {
			return err
		}
		var sum Tree
		for i, n := range all {
			n.sum = received[i*(last-first):][:last-first]
			sum.pushNode(n)
		}
		sum.foldNodes(received[:last-first])
		return c.gatherParts(name, bytesOf(x[lo:hi]), each, bytesOf(received[:last-first]))
	})
}

// foldNodes sets x to the sum of all nodes, whose memory it may be.
func (t *Tree) foldNodes(x []tensor.Float) {
	for len(t.nodes) > 1 {
		t.mergeLast()
	}
	copy(x, t.nodes[0].sum)
}
