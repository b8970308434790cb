// Package remote has the commands that talk to a running bridge.
package remote

import (
	"github.com/spf13/cobra"
)

// Commands returns get, apply, delete, watch, status, trace and routes.
func Commands() []*cobra.Command {
	return []*cobra.Command{newGet(), newApply(), newDelete(), newWatch(), newStatus(), newTrace(), newRoutes()}
}
