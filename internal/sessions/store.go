package sessions

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// store keeps the tokens of sessions in a database of bbolt. Each value has a checksum of its key
// and content, so a damaged page may lose a session, but never change it. One goroutine makes all
// transactions. Waiting changes share a transaction, which is synced to disk before they return.
// The goroutine turns panics and faults of the memory map into errors, because bbolt does not
// verify the pages of a damaged file.
type store struct {
	mu     sync.RWMutex
	closed bool
	ops    chan operation
	ended  chan struct{}

	retry func(write func() error) error // Manager.write

	// Of the goroutine.
	lines  map[uint64]int // sessions that read a line
	undo   []func()       // changes of lines that a failed transaction takes back
	broken error          // of a panic of bbolt that left its locks held; the error of all later operations
}

// operation is a function of a transaction, and the channel of its error.
type operation struct {
	run   func(tx transaction) error
	reads bool // it changes nothing
	err   chan error
}

// transaction is a transaction of the database.
type transaction = *bolt.Tx

// Names of the database.
const (
	storeFile = "sessions.db"

	storeVersion = "1"
	lockWait     = time.Second // for the file; the folder is locked before
)

var (
	metaBucket    = []byte("meta")
	sessionBucket = []byte("sessions") // id → record
	tokenBucket   = []byte("tokens")   // line, position → ids
)

// segment is a part of the log of a session. Forks share the segments before the fork.
type segment struct {
	Line uint64 `json:"line"`
	End  int64  `json:"end"` // tokens of the session at its end
}

// record is what the store knows of a session, beside its tokens.
type record struct {
	Owner    string    `json:"owner,omitempty"`
	Tokens   int64     `json:"tokens"`
	Start    int64     `json:"start,omitempty"` // tokens before the log, in the import
	Import   string    `json:"import,omitempty"`
	Segments []segment `json:"segments"`
	Snapshot string    `json:"snapshot,omitempty"` // key of the last snapshot
	Bytes    int64     `json:"bytes"`              // of the state
	Rewinds  int64     `json:"rewinds,omitempty"`
}

// read returns the segments that have tokens of the session.
func (r *record) read() []segment {
	var list []segment
	at := r.Start
	for _, g := range r.Segments {
		if g.End > at {
			list, at = append(list, g), g.End
		}
	}
	return list
}

// openStore opens the database of a folder and returns the records by id, and the ids whose
// records are damaged. It returns an error if the database is of another identity, damaged,
// or cannot be written. retry calls a write, and calls it again where the disk was full.
func openStore(dir, identity string, retry func(write func() error) error) (*store, map[string]record, []string, error) {
	s := &store{retry: retry, ops: make(chan operation), ended: make(chan struct{}), lines: map[uint64]int{}}
	opened := make(chan error)
	records := map[string]record{}
	go s.serve(filepath.Join(dir, storeFile), opened)
	if err := <-opened; err != nil {
		return nil, nil, nil, err
	}
	var damaged []string
	err := s.update(func(tx transaction) (err error) {
		damaged, err = s.load(tx, identity, records)
		return err
	})
	if err != nil {
		s.close()
		return nil, nil, nil, err
	}
	atomicfile.SyncFolder(dir) // bbolt does not sync the name of a new file
	return s, records, damaged, nil
}

// serve opens the database and runs operations until ops is closed.
func (s *store) serve(path string, opened chan<- error) {
	defer close(s.ended)
	debug.SetPanicOnFault(true)
	var db *bolt.DB
	err := protect(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait, FreelistType: bolt.FreelistMapType})
		if errors.Is(err, berrors.ErrInvalid) || errors.Is(err, berrors.ErrChecksum) || errors.Is(err, berrors.ErrVersionMismatch) {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
		}
		return err
	})
	opened <- err
	if err != nil {
		return
	}
	defer func() {
		if s.broken == nil {
			_ = protect(db.Close)
		}
	}()
	var batch []operation
	for op := range s.ops {
		batch = append(batch[:0], op)
	more:
		for {
			select {
			case op, ok := <-s.ops:
				if !ok {
					break more
				}
				batch = append(batch, op)
			default:
				break more
			}
		}
		if err := s.tryBatch(db, batch); err == nil || len(batch) == 1 {
			for _, op := range batch {
				op.err <- err
			}
		} else {
			for i, op := range batch { // find the one that fails
				op.err <- s.tryBatch(db, batch[i:i+1])
			}
		}
		clear(batch) // what was written or read
	}
}

// tryBatch is runBatch, where changes are tried again after a full disk.
func (s *store) tryBatch(db *bolt.DB, batch []operation) error {
	if !slices.ContainsFunc(batch, func(op operation) bool { return !op.reads }) {
		return s.runBatch(db, batch)
	}
	return s.retry(func() error { return s.runBatch(db, batch) })
}

// runBatch runs operations in one transaction. The error of one is the error of all.
func (s *store) runBatch(db *bolt.DB, batch []operation) error {
	if s.broken != nil {
		return s.broken
	}
	begin := db.View
	if slices.ContainsFunc(batch, func(op operation) bool { return !op.reads }) {
		begin = db.Update
	}
	var begun transaction
	err := protect(func() error {
		return begin(func(tx transaction) error {
			begun = tx
			return protect(func() error { // bbolt rolls an error back without the pages of the file
				for _, op := range batch {
					if err := op.run(tx); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
	if err != nil {
		if begun == nil || begun.DB() != nil { // it has not ended
			s.broken = err
		}
		for _, f := range s.undo {
			f()
		}
	}
	s.undo = nil
	return err
}

// protect returns the panic of f as an error.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: the database: %v", ErrDamaged, r)
		}
	}()
	return f()
}

// close ends the goroutine and closes the database. Later calls return ErrClosed.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	close(s.ops)
	<-s.ended
}

// update runs f in a transaction that may write, and returns when it is synced.
func (s *store) update(f func(tx transaction) error) error { return s.do(operation{run: f}) }

// view runs f in a transaction.
func (s *store) view(f func(tx transaction) error) error { return s.do(operation{run: f, reads: true}) }

func (s *store) do(op operation) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	op.err = make(chan error, 1)
	s.ops <- op
	return <-op.err
}

// seal returns content after a checksum of key and content.
func seal(key, content []byte) []byte {
	sum := sha256.Sum256(append(slices.Clone(key), content...))
	return append(sum[:sealSize:sealSize], content...)
}

// sealSize is the number of bytes of a checksum.
const sealSize = 16

// unseal returns the content of a value. It returns an error if it is damaged.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < sealSize || !bytes.Equal(seal(key, value[sealSize:]), value) {
		return nil, fmt.Errorf("%w: the value of %x", ErrDamaged, key)
	}
	return value[sealSize:], nil
}

// load checks the identity and reads all records. It returns the ids of damaged records.
func (s *store) load(tx transaction, identity string, records map[string]record) (damaged []string, err error) {
	for _, name := range [][]byte{metaBucket, sessionBucket, tokenBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return nil, err
		}
	}
	meta := tx.Bucket(metaBucket)
	for key, want := range map[string]string{"version": storeVersion, "identity": identity} {
		switch got := meta.Get([]byte(key)); {
		case got == nil:
			if err := meta.Put([]byte(key), []byte(want)); err != nil {
				return nil, err
			}
		case string(got) != want:
			return nil, fmt.Errorf("%w: the store has %s %q, this model %q", ErrForeign, key, describe(string(got)), describe(want))
		}
	}
	err = tx.Bucket(sessionBucket).ForEach(func(id, value []byte) error {
		r, err := readRecord(id, value)
		switch {
		case err == nil:
			records[string(id)] = r
			s.count(r, 1)
		case errors.Is(err, ErrDamaged) && meta.Get(forgottenKey(string(id))) == nil:
			damaged = append(damaged, string(id))
		}
		return nil // the other sessions are whole
	})
	return damaged, err
}

// count adds n to the readers of the lines of r, until the transaction fails.
func (s *store) count(r record, n int) {
	add := func(n int) {
		for _, g := range r.Segments {
			if s.lines[g.Line] += n; s.lines[g.Line] == 0 {
				delete(s.lines, g.Line)
			}
		}
	}
	add(n)
	s.undo = append(s.undo, func() { add(-n) })
}

// readRecord reads the value of a session.
func readRecord(id, value []byte) (r record, err error) {
	if value == nil {
		return r, ErrUnknown
	}
	text, err := unseal(id, value)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: its record: %w", ErrDamaged, err)
	}
	return r, nil
}

// writeRecord sets the value of a session.
func writeRecord(tx transaction, id string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return tx.Bucket(sessionBucket).Put([]byte(id), seal([]byte(id), text))
}

// tokenKey returns the key of tokens of a line from a position on.
func tokenKey(line uint64, position int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, line)
	return binary.BigEndian.AppendUint64(b, uint64(position))
}

// create adds a session whose log has ids. parent is the session that it continues, in
// r.Segments; its tokens are shared.
func (s *store) create(id string, r record, ids []int32) error {
	return s.update(func(tx transaction) error {
		line, err := tx.Bucket(tokenBucket).NextSequence()
		if err != nil {
			return err
		}
		r := r
		r.Segments = append(r.read(), segment{line, 0})
		if err := writeTokens(tx, &r, ids); err != nil {
			return err
		}
		s.count(r, 1)
		return writeRecord(tx, id, r)
	})
}

// writeTokens adds ids to the last line of r.
func writeTokens(tx transaction, r *record, ids []int32) error {
	last := &r.Segments[len(r.Segments)-1]
	if len(ids) > 0 {
		key := tokenKey(last.Line, r.Tokens)
		b := make([]byte, 0, 4*len(ids))
		for _, t := range ids {
			b = binary.LittleEndian.AppendUint32(b, uint32(t))
		}
		if err := tx.Bucket(tokenBucket).Put(key, seal(key, b)); err != nil {
			return err
		}
	}
	r.Tokens += int64(len(ids))
	last.End = r.Tokens
	return nil
}

// change applies f to the record of a session.
func change(tx transaction, id string, f func(r *record) error) error {
	r, err := readRecord([]byte(id), tx.Bucket(sessionBucket).Get([]byte(id)))
	if err != nil {
		return err
	}
	if err := f(&r); err != nil {
		return err
	}
	return writeRecord(tx, id, r)
}

// append adds ids to the log of a session, whose state then has a number of bytes.
func (s *store) append(id string, ids []int32, bytes int64) error {
	return s.update(func(tx transaction) error {
		return change(tx, id, func(r *record) error {
			r.Bytes = bytes
			return writeTokens(tx, r, ids)
		})
	})
}

// rewind leaves the first tokens of a session alone. Tokens that follow go to a line of their own, since forks may
// read the old one.
func (s *store) rewind(id string, tokens int64) error {
	return s.update(func(tx transaction) error {
		var old record
		err := change(tx, id, func(r *record) error {
			old = *r
			line, err := tx.Bucket(tokenBucket).NextSequence()
			if err != nil {
				return err
			}
			at := r.Start
			var list []segment
			for _, g := range r.read() {
				if at < tokens {
					list = append(list, segment{g.Line, min(g.End, tokens)})
				}
				at = g.End
			}
			r.Segments = append(list, segment{line, tokens})
			r.Tokens, r.Snapshot = tokens, ""
			r.Rewinds++
			s.count(*r, 1)
			return nil
		})
		if err != nil {
			return err
		}
		s.count(old, -1)
		for _, g := range old.Segments {
			if s.lines[g.Line] == 0 {
				if err := deleteLine(tx, g.Line); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// setSnapshots records the last snapshots of sessions. Sessions that are gone are left
// out.
func (s *store) setSnapshots(list []saving) error {
	return s.update(func(tx transaction) error {
		for _, x := range list {
			err := change(tx, x.id, func(r *record) error {
				if r.Rewinds == x.era {
					r.Snapshot = hex.EncodeToString(x.e.key[:])
				}
				return nil
			})
			if err != nil && !errors.Is(err, ErrUnknown) {
				return err
			}
		}
		return nil
	})
}

// fork adds a session of an owner with the tokens of another, whose state has a number of bytes.
func (s *store) fork(parent, id, owner string, bytes int64) error {
	var r record
	err := s.view(func(tx transaction) (err error) {
		r, err = readRecord([]byte(parent), tx.Bucket(sessionBucket).Get([]byte(parent)))
		return err
	})
	if err != nil {
		return err
	}
	r.Owner, r.Bytes = owner, bytes
	return s.create(id, r, nil)
}

// delete removes a session, and the lines that no other reads.
func (s *store) delete(id string) error {
	return s.update(func(tx transaction) error {
		sessions := tx.Bucket(sessionBucket)
		r, err := readRecord([]byte(id), sessions.Get([]byte(id)))
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		s.count(r, -1)
		for _, g := range r.Segments {
			if s.lines[g.Line] == 0 {
				if err := deleteLine(tx, g.Line); err != nil {
					return err
				}
			}
		}
		return sessions.Delete([]byte(id))
	})
}

// deleteLine removes the tokens of a line.
func deleteLine(tx transaction, line uint64) error {
	start := tokenKey(line, 0)
	c := tx.Bucket(tokenBucket).Cursor()
	for k, _ := c.Seek(start); bytes.HasPrefix(k, start[:8]); {
		key := bytes.Clone(k)
		if err := c.Delete(); err != nil {
			return err
		}
		k, _ = c.Seek(key) // Next may leave out the key after a deleted one
		if bytes.Compare(k, key) <= 0 {
			return nil // the keys of a damaged page are out of order
		}
	}
	return nil
}

// forget leaves a damaged record out of the next load. Its key is out of order, where delete does not find it.
func (s *store) forget(id string) error {
	return s.update(func(tx transaction) error { return tx.Bucket(metaBucket).Put(forgottenKey(id), []byte{1}) })
}

// forgottenKey returns the key of a record that is left out, in metaBucket.
func forgottenKey(id string) []byte {
	return fmt.Appendf(nil, "deleted %x", sha256.Sum256([]byte(id)))
}

// deleteUnread removes the lines that no session reads. Damaged records may read them.
func (s *store) deleteUnread() error {
	return s.update(func(tx transaction) error {
		c := tx.Bucket(tokenBucket).Cursor()
		var from uint64 // the line that Seek looked for
		for k, _ := c.First(); k != nil; {
			if len(k) < 8 {
				k, _ = c.Next()
				continue
			}
			line := binary.BigEndian.Uint64(k)
			if line < from {
				return nil // the keys of a damaged page are out of order
			}
			if s.lines[line] == 0 {
				if err := deleteLine(tx, line); err != nil {
					return err
				}
			}
			if line == math.MaxUint64 {
				return nil
			}
			from = line + 1
			k, _ = c.Seek(tokenKey(from, 0))
		}
		return nil
	})
}

// read returns the record of a session and its tokens from a position on. It returns
// ErrDamaged if some are missing.
func (s *store) read(id string, from int64) (r record, ids []int32, err error) {
	err = s.view(func(tx transaction) error {
		ids = nil // of a transaction that failed
		if r, err = readRecord([]byte(id), tx.Bucket(sessionBucket).Get([]byte(id))); err != nil {
			return err
		}
		at := r.Start
		for _, g := range r.Segments {
			if g.End > from {
				if ids, err = readLine(tx, g.Line, max(at, from), at, g.End, ids); err != nil {
					return err
				}
			}
			at = g.End
		}
		if n := r.Tokens - max(from, r.Start); int64(len(ids)) != n {
			return fmt.Errorf("%w: the log has %d tokens from %d on, needs %d", ErrDamaged, len(ids), from, n)
		}
		return nil
	})
	return r, ids, err
}

// begin returns the first n tokens of the log of a session, or all that it has. It returns ErrDamaged if some are
// missing.
func (s *store) begin(id string, n int64) (ids []int32, err error) {
	err = s.view(func(tx transaction) error {
		ids = nil // of a transaction that failed
		r, err := readRecord([]byte(id), tx.Bucket(sessionBucket).Get([]byte(id)))
		if err != nil {
			return err
		}
		at := r.Start
		for _, g := range r.Segments {
			if end := min(g.End, r.Start+n); end > at {
				if ids, err = readLine(tx, g.Line, at, at, end, ids); err != nil {
					return err
				}
			}
			at = g.End
		}
		return nil
	})
	return ids, err
}

// readLine appends the tokens from ≤ i < end of a line to ids. The line begins at start.
func readLine(tx transaction, line uint64, from, start, end int64, ids []int32) ([]int32, error) {
	c := tx.Bucket(tokenBucket).Cursor()
	first := tokenKey(line, from)
	k, v := c.Seek(first)
	if !bytes.Equal(k, first) && from > start {
		k, v = c.Prev() // from is within the value before
	}
	for at := from; at < end; k, v = c.Next() {
		if len(k) != 16 || !bytes.HasPrefix(k, first[:8]) {
			return nil, fmt.Errorf("%w: the log ends at token %d of %d", ErrDamaged, at, end)
		}
		b, err := unseal(k, v)
		if err != nil {
			return nil, err
		}
		skip := at - int64(binary.BigEndian.Uint64(k[8:]))
		if n := int64(len(b) / 4); skip < 0 || skip >= n {
			return nil, fmt.Errorf("%w: the log has no token %d", ErrDamaged, at)
		}
		for b = b[4*skip:]; len(b) > 0 && at < end; b = b[4:] {
			ids = append(ids, int32(binary.LittleEndian.Uint32(b)))
			at++
		}
	}
	return ids, nil
}
