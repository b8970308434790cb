package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// TestNewProblems: a problem is known if all of it is equal.
func TestNewProblems(t *testing.T) {
	a, b := coe.Problem{Kind: "pod", UID: "a", Reason: coe.AddressTaken}, coe.Problem{Kind: "pod", UID: "b", Reason: coe.AddressTaken}
	another := a
	another.Message = "by another pod"
	require.Equal(t, []coe.Problem{b, another}, plan.NewProblems([]coe.Problem{a}, []coe.Problem{b, a, another, b}))
	require.Empty(t, plan.NewProblems([]coe.Problem{a, b}, []coe.Problem{a}))
	require.Empty(t, plan.NewProblems(nil, nil))
}
