package vpp

import (
	"testing"

	"github.com/sluice-net/sluice/tests/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
