package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/sequence"
)

// The tokens of a stream may be divided among ranks (Options.Ranks), each of which
// reads its own. They go through their keys, exchange the totals of their states, and
// then read their queries behind what the others have. All write their rows into one
// file, which rank 0 creates and gives its name: they need a common folder.

// alone reports that no other rank takes part.
func (o *Options) alone() bool { return o.Ranks == nil || o.Ranks.Size() == 1 }

// divided returns the passes of a rank.
func divided(s Shape, causal bool, rank, size int) []pass {
	q0, q1 := sequence.Part(s.N, rank, size)
	if !causal {
		k0, k1 := sequence.Part(s.M, rank, size)
		return []pass{{want: Keys, n: k1 - k0, key0: k0}, {want: Queries, n: q1 - q0, query0: q0, meets: true}}
	}
	before := s.M - s.N // keys before the first query are rank 0's
	k0, k1 := before+q0, before+q1
	step := pass{want: Keys | Queries, n: q1 - q0, key0: k0, query0: q0, meets: true}
	if rank > 0 || before == 0 {
		return []pass{{want: Keys, n: k1 - k0, key0: k0}, step}
	}
	step.meets = false
	return []pass{{want: Keys, n: k1}, {want: Keys, n: before, meets: true}, step}
}

// together returns an error of any rank on all of them.
func (r *run[T]) together(err error) error {
	if r.o.alone() {
		return err
	}
	return comm.Together(r.o.Ranks, err)
}

// agree reports ranks that are about to compute something else.
func (r *run[T]) agree() error {
	if r.o.alone() {
		return nil
	}
	var fields []comm.Field
	for _, f := range r.bound {
		fields = append(fields, comm.Field(f))
	}
	return comm.Agree(r.o.Ranks, fields...)
}

// meet makes the state that of what this rank's queries see of the others.
func (r *run[T]) meet() error {
	before := r.o.Ranks.Sent()
	err := sequence.Exchange(r.o.Ranks, r.m, r.state, r.o.Causal, nil)
	r.sent += r.o.Ranks.Sent() - before
	return err
}

// open begins the output: rank 0 creates the file, in which the others write.
func (r *run[T]) open() error {
	if r.o.alone() {
		return r.out.create()
	}
	var err error
	if r.o.Ranks.Rank() == 0 {
		err = r.out.create()
	}
	if err = r.together(err); err != nil {
		return err
	}
	if r.o.Ranks.Rank() > 0 {
		err = r.out.join()
	}
	return r.together(err)
}

// commit gives the output its name when every rank has written its rows, and has the
// digests of all.
func (r *run[T]) commit() error {
	if r.o.alone() {
		return r.out.commit()
	}
	if err := r.together(r.out.sync()); err != nil {
		return err
	}
	var own []byte
	for _, d := range r.out.digests {
		own = binary.LittleEndian.AppendUint32(own, d)
	}
	all, err := comm.AllGather(r.o.Ranks, own)
	if err != nil {
		return err
	}
	clear(r.out.digests)
	for rank, b := range all {
		if len(b) != len(own) {
			return fmt.Errorf("rank %d has %d bytes of digests, this one %d", rank, len(b), len(own))
		}
		lo, hi := sequence.Part(r.shape.N, rank, len(all))
		for i := range r.out.digests {
			r.out.digests[i] = joinDigest(r.out.digests[i], binary.LittleEndian.Uint32(b[4*i:]), (hi-lo)*r.out.rowBytes())
		}
	}
	if r.o.Ranks.Rank() == 0 {
		err = r.out.commit()
	}
	return r.together(err)
}
