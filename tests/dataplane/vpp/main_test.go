package vpp

import (
	"testing"

	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
