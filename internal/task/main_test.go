package task

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
)

func TestMain(m *testing.M) {
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	m.Run()
}
