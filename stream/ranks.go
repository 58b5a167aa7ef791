package stream

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/sequence"
)

// The tokens of a stream may be divided among ranks (Options.Ranks), each of which
// reads its own. They go through their keys, exchange the totals of their states, and
// then read their queries behind what the others have. All write their rows into one
// file, which rank 0 creates and gives its name: they need a common folder.

// alone reports that no other rank takes part.
func (o *Options) alone() bool { return o.Ranks.Size() == 1 }

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
	return comm.Together(r.o.Ranks, err)
}

// agree reports ranks that are about to compute something else.
func (r *run[T]) agree() error {
	var fields []comm.Field
	for _, f := range r.bound {
		fields = append(fields, comm.Field(f))
	}
	return comm.Agree(r.o.Ranks, fields...)
}

// meet makes the state that of what this rank's queries see of the others. It saves
// what was before, in the end of the pass before, and what is then.
func (r *run[T]) meet() error {
	keep := func(pass int, at int64) error {
		if r.o.Checkpoint == "" {
			return nil
		}
		c, err := r.snapshot(nil)
		if err == nil {
			c.Pass, c.At = pass, at
			err = r.save(c)
		}
		return r.together(err)
	}
	if err := keep(r.pass-1, r.passes[r.pass-1].n); err != nil {
		return err
	}
	before := r.o.Ranks.Sent()
	err := sequence.Exchange(r.o.Ranks, r.m, r.state, r.o.Causal, nil)
	r.sent += r.o.Ranks.Sent() - before
	if err != nil {
		return err
	}
	r.met = true
	return keep(r.pass, 0)
}

// rejoin goes on from the checkpoints of all ranks: those of after the exchange if
// all have one, and else from what each has of before it, be that nothing. Until the
// exchange no row is written.
func (r *run[T]) rejoin() error {
	var before, after *checkpoint
	err := func() (err error) {
		if r.o.Fresh {
			return r.forget()
		}
		for _, c := range []**checkpoint{&before, &after} {
			path := r.checkpoint(c == &after)
			if *c, err = r.recall(path); err == nil && *c != nil {
				if err = (*c).fits(r.bound, r.passes); err == nil && ((*c).Rank != r.o.Ranks.Rank() || (*c).Met != (c == &after)) {
					err = fmt.Errorf("checkpoint: is of rank %d, met %t; needs rank %d, met %t", (*c).Rank, (*c).Met, r.o.Ranks.Rank(), c == &after)
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", path, err)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}()
	if err = r.together(err); err != nil {
		return &BadInput{err}
	}
	own := []byte{0}
	if after != nil {
		own[0] = 1
	}
	all, err := comm.AllGather(r.o.Ranks, own)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(b []byte) bool { return !slices.Equal(b, []byte{1}) }) {
		if err := r.open(); err != nil {
			return err
		}
		if before != nil {
			err = r.restore(before)
		}
		return r.together(err)
	}
	r.kept = true
	if err = r.restore(after); err == nil {
		r.out.joined = r.o.Ranks.Rank() > 0
		err = r.out.resume(r.rows(), after.Digests, after.Whole)
	}
	if err = r.together(err); err != nil {
		return &BadInput{err}
	}
	return nil
}

// open begins the output: rank 0 creates the file, in which the others write.
func (r *run[T]) open() error {
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
