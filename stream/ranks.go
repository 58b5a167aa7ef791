package stream

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/internal/streamfile"
)

// The tokens of a stream may be divided among ranks (Options.Ranks). Each rank reads its own
// tokens and absorbs their keys. The ranks then exchange the totals of their states, and each
// reads its queries. All ranks write their rows into one file in a common folder, which rank 0
// creates and renames.

// isAlone reports whether there is one rank.
func (o *Options) isAlone() bool { return o.Ranks.Size() == 1 }

// dividePasses returns the passes of a rank.
func dividePasses(s Shape, causal bool, rank, size int) []pass {
	q0, q1 := sequence.PartRange(s.N, rank, size)
	if !causal {
		k0, k1 := sequence.PartRange(s.M, rank, size)
		return []pass{{role: Keys, count: k1 - k0, firstKey: k0}, {role: Queries, count: q1 - q0, firstQuery: q0, needsExchange: true}}
	}
	before := s.M - s.N // rank 0 takes the keys before the first query
	k0, k1 := before+q0, before+q1
	step := pass{role: Keys | Queries, count: q1 - q0, firstKey: k0, firstQuery: q0, needsExchange: true}
	if rank > 0 || before == 0 {
		return []pass{{role: Keys, count: k1 - k0, firstKey: k0}, step}
	}
	step.needsExchange = false
	return []pass{{role: Keys, count: k1}, {role: Keys, count: before, needsExchange: true}, step}
}

// shareError returns an error on every rank if one rank has one.
func (r *run) shareError(err error) error {
	return comm.ShareError(r.options.Ranks, err)
}

// checkAgreement returns an error if the ranks compute different streams.
func (r *run) checkAgreement() error {
	return comm.CheckAgreement(r.options.Ranks, r.binding...)
}

// exchangeStates replaces the state by the state that this rank's queries see of other
// ranks. It writes a checkpoint before and after the exchange.
func (r *run) exchangeStates() error {
	keep := func(pass int, at int64) error {
		if r.options.Checkpoint == "" {
			return nil
		}
		c, err := r.newCheckpoint(nil)
		if err == nil {
			c.Pass, c.Tokens = pass, at
			err = r.saveCheckpoint(c)
		}
		return r.shareError(err)
	}
	if err := keep(r.pass-1, r.passes[r.pass-1].count); err != nil {
		return err
	}
	before := r.options.Ranks.SentBytes()
	err := sequence.ExchangeState(r.options.Ranks, r.mechanism, r.state, r.options.Causal, nil)
	r.sentBytes += r.options.Ranks.SentBytes() - before
	if err != nil {
		return err
	}
	r.exchanged = true
	return keep(r.pass, 0)
}

// resumeRanks continues from the checkpoints of all ranks: from after the exchange if
// every rank has such a checkpoint, otherwise from before it, or from the start. No row
// is written before the exchange.
func (r *run) resumeRanks() error {
	var before, after *streamfile.Checkpoint
	err := func() (err error) {
		if r.options.Restart {
			return r.discardCheckpoints()
		}
		for _, c := range []**streamfile.Checkpoint{&before, &after} {
			path := r.checkpointPath(c == &after)
			if *c, err = r.readOwnCheckpoint(path); err == nil && *c != nil {
				if err = checkRun(*c, r.binding, r.passes); err == nil && ((*c).Rank != r.options.Ranks.Rank() || (*c).IsExchanged != (c == &after)) {
					err = fmt.Errorf("checkpoint: is of rank %d, met %t; needs rank %d, met %t", (*c).Rank, (*c).IsExchanged, r.options.Ranks.Rank(), c == &after)
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
	if err = r.shareError(err); err != nil {
		return fault.Mark(fault.ErrInput, err)
	}
	own := []byte{0}
	if after != nil {
		own[0] = 1
	}
	all, err := comm.AllGather(r.options.Ranks, own)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(b []byte) bool { return !slices.Equal(b, []byte{1}) }) {
		if err := r.openOutput(); err != nil {
			return err
		}
		if before != nil {
			err = r.restoreState(before)
		}
		return r.shareError(err)
	}
	r.hasCheckpoint = true
	if err = r.restoreState(after); err == nil {
		r.out.isShared = r.options.Ranks.Rank() > 0
		err = r.resumeOutput(after)
	}
	if err = r.shareError(err); err != nil {
		return fault.Mark(fault.ErrInput, err)
	}
	return nil
}

// openOutput opens the output: rank 0 creates the file, the others open it.
func (r *run) openOutput() error {
	var err error
	if r.options.Ranks.Rank() == 0 {
		err = r.out.createFile()
	}
	if err = r.shareError(err); err != nil {
		return err
	}
	if r.options.Ranks.Rank() > 0 {
		err = r.out.openShared()
	}
	return r.shareError(err)
}

// commitOutput gives the output its final name when every rank has written its rows, and
// joins the digests of all ranks.
func (r *run) commitOutput() error {
	if r.options.isAlone() {
		return r.out.commitFile()
	}
	if err := r.shareError(r.out.syncFile()); err != nil {
		return err
	}
	var own []byte
	for _, d := range r.out.digests {
		own = binary.LittleEndian.AppendUint32(own, d)
	}
	all, err := comm.AllGather(r.options.Ranks, own)
	if err != nil {
		return err
	}
	clear(r.out.digests)
	for rank, b := range all {
		if len(b) != len(own) {
			return fmt.Errorf("rank %d has %d bytes of digests, this one %d", rank, len(b), len(own))
		}
		lo, hi := sequence.PartRange(r.shape.N, rank, len(all))
		for i := range r.out.digests {
			r.out.digests[i] = joinDigest(r.out.digests[i], binary.LittleEndian.Uint32(b[4*i:]), (hi-lo)*r.out.rowBytes())
		}
	}
	if r.options.Ranks.Rank() == 0 {
		err = r.out.commitFile()
	}
	return r.shareError(err)
}
