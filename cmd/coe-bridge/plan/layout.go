package plan

import (
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// stageTexts say what the stages are.
var stageTexts = map[plan.Stage]string{
	plan.StageBefore:   "before the change",
	plan.StageAfter:    "right after it",
	plan.StageReplaced: "when all pods are created again",
}

// layoutTables are a change of the layout as tables.
func layoutTables(c *plan.LayoutChange) []output.Table {
	costs := output.Table{
		Title:   fmt.Sprintf("what a change from --ovn-layout %s to %s costs OVN (logical flows are an estimate; running pods lose packets while the switches replace theirs):", c.From, c.To),
		Columns: []string{"", "LAYOUT", "ROWS", "LOGICAL FLOWS"},
	}
	pools := output.Table{
		Title:   "blocks of pools (how many pods fit is an estimate):",
		Columns: []string{"", "POOL", "SUBNET", "BLOCKS", "PODS", "PODS THAT FIT"},
		Empty:   "no pools",
	}
	for _, s := range c.Stages {
		costs.Rows = append(costs.Rows, []string{stageTexts[s.Stage], string(s.Layout), fmt.Sprint(s.Rows), fmt.Sprint(s.LogicalFlows)})
		for _, p := range s.Pools {
			pools.Rows = append(pools.Rows, []string{
				stageTexts[s.Stage], p.Network, p.Subnet.String(), fmt.Sprint(p.Blocks), fmt.Sprint(p.Pods), fmt.Sprint(p.Fit),
			})
		}
	}
	return []output.Table{costs, pools}
}

// allProblems returns the problems of a plan, then those that only a change of the layout makes.
func allProblems(p *plan.Plan) []coe.Problem {
	if p.Layout == nil {
		return p.Problems
	}
	return slices.Concat(p.Problems, plan.NewProblems(p.Problems, p.Layout.Problems))
}
