package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
)

// favorSubjects are the forms of performer that see whole heads.
func favorSubjects() (list []subject) {
	for _, kernel := range []string{"softmax", "hyperbolic"} {
		s := subject{
			label: "performer form=code kernel=" + kernel, name: "performer",
			o:     Options{Width: 3, Set: map[string]string{"form": "code", "kernel": kernel, "features": "5"}},
			whole: func(p numbers) oracle.HeadMatrix { return favorBook(kernel, p).Weights },
		}
		if kernel == "softmax" {
			s.average, s.frozen = true, "the largest exponents count as constants, as in the program; TestPerformerGradientsHoldTheLargestExponents compares them so"
		}
		list = append(list, s)
	}
	return list
}

func favorBook(kernel string, p numbers) *oracle.HeadFavor {
	book := &oracle.HeadFavor{Favor: oracle.Favor{Kernel: kernel, W: rowsOf(p["projection"], 3), Root: fourthRoot(3), KeepFactor: true}}
	if kernel == "softmax" {
		book.FeatureEps = 1e-4
	} else {
		book.Eps = 1e-6
	}
	return book
}

func TestPerformerOfProgramsDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	for _, kernel := range []string{"softmax", "hyperbolic"} {
		doNotAllocate(t, "performer", map[string]string{"form": "code", "kernel": kernel})
	}
}
