package cpu

import (
	"slices"
	"strings"
	"testing"
)

func TestInstructionSetsEndWithGeneric(t *testing.T) {
	sets := InstructionSets()
	if len(sets) == 0 || sets[len(sets)-1] != Generic {
		t.Errorf("Available() = %q, does not end in %q", sets, Generic)
	}
	if !slices.Contains(sets, ActiveSet()) {
		t.Errorf("Chosen() = %q is not available", ActiveSet())
	}
	if !strings.HasPrefix(SelectionReason(), ActiveSet()+": ") {
		t.Errorf("Reason() = %q does not start with what was chosen", SelectionReason())
	}
}

func TestChoiceFollowsTheVariable(t *testing.T) {
	defer func(sets []string, why string) { available, lacking = sets, why }(available, lacking)
	for _, c := range []struct {
		sets []string
		wish string
		isa  string
		says string
	}{
		{[]string{AVX512, AVX2, Generic}, "", AVX512, "the best of avx512, avx2, generic"},
		{[]string{AVX512, AVX2, Generic}, "avx2", AVX2, "asked for by FARFIELD_ISA"},
		{[]string{AVX512, AVX2, Generic}, "generic", Generic, "asked for by FARFIELD_ISA"},
		{[]string{AVX512, AVX2, Generic}, "neon", AVX512, `FARFIELD_ISA="neon" is ignored`},
		{[]string{AVX2, Generic}, "avx512", AVX2, `FARFIELD_ISA="avx512" is ignored`},
		{[]string{Generic}, "", Generic, "the reason"},
	} {
		available, lacking = c.sets, ""
		if len(c.sets) == 1 {
			lacking = "the reason"
		}
		isa, why := chooseSet(c.wish)
		if isa != c.isa || !strings.HasPrefix(why, isa+": ") || !strings.Contains(why, c.says) {
			t.Errorf("of %q, wishing %q: %q, %q", c.sets, c.wish, isa, why)
		}
	}
}

func TestUnknownSetsAreRefused(t *testing.T) {
	for _, wish := range []string{"", Generic, "zzz"} {
		t.Setenv(Variable, wish)
		err := CheckSelection()
		if known := wish != "zzz"; known && err != nil || !known && (err == nil || !strings.Contains(err.Error(), `FARFIELD_ISA: "zzz" is no instruction set of this machine; there are `)) {
			t.Errorf("%q: %v", wish, err)
		}
	}
}
