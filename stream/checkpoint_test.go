//go:build !float64

package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/streamfile"
)

// checkpointOf returns a checkpoint with these parts and a valid checksum. Its lengths
// exceed the lengths of the parts by textMore and stateMore.
func checkpointOf(magic string, version uint32, text string, textMore int, state string, stateMore int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = append(binary.LittleEndian.AppendUint64(b, uint64(len(text)+textMore)), text...)
	b = append(binary.LittleEndian.AppendUint64(b, uint64(len(state)+stateMore)), state...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// A checkpoint whose checksum holds may have been made by anybody: all of it and its
// header alone are refused for the same reasons.
func TestCheckpointsOfStrangers(t *testing.T) {
	t.Parallel()
	const good = `{"Pass":1,"At":5}`
	for _, c := range []struct {
		b            []byte
		whole, alone string // errors; "": there is none
	}{
		{nil, "checkpoint: truncated: 0 bytes", "checkpoint: truncated: 0 bytes"},
		{checkpointOf("FFSX", 1, good, 0, "s", 0), `checkpoint: begins with "FFSX", not "FFSC"`, `checkpoint: begins with "FFSX", not "FFSC"`},
		{checkpointOf("FFSC", 7, good, 0, "s", 0), "checkpoint: version is 7, this program reads 1", "checkpoint: version is 7, this program reads 1"},
		{checkpointOf("FFSC", 1, good, 40, "s", 0), "checkpoint: part 1 needs 57 bytes, 26 are left", "checkpoint: part 1 needs 57 bytes, 26 are left"},
		{checkpointOf("FFSC", 1, "{", 0, "s", 0), "checkpoint: unexpected end of JSON input", "checkpoint: unexpected end of JSON input"},
		{checkpointOf("FFSC", 1, good, 0, "s", 3), "checkpoint: part 2 needs 4 bytes, 1 are left", "checkpoint: the state has 4 bytes, 1 are left"},
		{checkpointOf("FFSC", 1, good, 0, "s", -1), "checkpoint: 1 bytes follow its last part", "checkpoint: the state has 0 bytes, 1 are left"},
		{checkpointOf("FFSC", 1, good, 0, "no state", 0), "", `snapshot: begins with "no s", not "FFST"`},
	} {
		got, err := streamfile.Parse(c.b)
		if c.whole != "" {
			refused(t, err, c.whole)
		} else if err != nil || got.Pass != 1 || got.Tokens != 5 || string(got.State) != "no state" {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = streamfile.ReadHeader(bytes.NewReader(c.b), int64(len(c.b)))
		refused(t, err, c.alone)
	}
}

// What a checkpoint is of, and where in it, has to be of the run that would go on.
func TestCheckpointFits(t *testing.T) {
	t.Parallel()
	want, all := []comm.Field{{Name: "N", Value: "9"}, {Name: "D", Value: "4"}}, []pass{{count: 9}, {count: -1}}
	for _, c := range []struct {
		c    streamfile.Checkpoint
		want string
	}{
		{streamfile.Checkpoint{Bound: want[:1]}, "checkpoint: is of another kind of input: it does not have D = 4"},
		{streamfile.Checkpoint{Bound: []comm.Field{{Name: "N", Value: "9"}, {Name: "H", Value: "4"}}}, "checkpoint: is of another kind of input: it does not have D = 4"},
		{streamfile.Checkpoint{Bound: []comm.Field{{Name: "N", Value: "8"}, {Name: "D", Value: "4"}}}, "checkpoint: N is 8, this run has 9"},
		{streamfile.Checkpoint{Bound: append(want[:2:2], comm.Field{Name: "H", Value: "1"})}, "checkpoint: is of another kind of input: it has H = 1"},
		{streamfile.Checkpoint{Bound: want, Pass: 2}, "checkpoint: pass is 2, the run has 2"},
		{streamfile.Checkpoint{Bound: want, Pass: -1}, "checkpoint: pass is -1, tokens are 0, needs 0 or more"},
		{streamfile.Checkpoint{Bound: want, Tokens: 10}, "checkpoint: is of 10 tokens, the pass has 9"},
		{streamfile.Checkpoint{Bound: want, Pass: 1, Tokens: -1}, "checkpoint: pass is 1, tokens are -1, needs 0 or more"},
	} {
		err, kind := checkRun(&c.c, want, all), fault.ErrMismatch
		if c.c.Pass < 0 || c.c.Tokens < 0 {
			kind = fault.ErrDamaged
		}
		if refused(t, err, c.want); !errors.Is(err, kind) {
			t.Errorf("%v is not %v", err, kind)
		}
	}
	for _, c := range []streamfile.Checkpoint{{Bound: want, Tokens: 9}, {Bound: want, Pass: 1, Tokens: 1 << 40}} {
		if err := checkRun(&c, want, all); err != nil {
			t.Error(err)
		}
	}
}

// A checkpoint that cannot be read or removed is an error, one that is not there none.
func TestCheckpointsThatAreFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if c, err := streamfile.ReadFile(dir+"/none", 9); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
	if err := removeCheckpoint(dir + "/none"); err != nil {
		t.Error(err)
	}
	if c, err := streamfile.ReadFile(dir, 9); c != nil || err == nil {
		t.Errorf("%v, %v", c, err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := removeCheckpoint(dir); err == nil {
		t.Error("a folder is removed with what is in it")
	}
	if err := (&streamfile.Checkpoint{}).WriteFile(dir + "/none/c"); err == nil {
		t.Error("a checkpoint is written where no folder is")
	}
}
