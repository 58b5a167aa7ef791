package engine

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
)

func TestMain(m *testing.M) {
	suite.CollectRarely()
	m.Run()
}
