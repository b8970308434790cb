package odlpods

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Limits of Evidence.
const (
	logBytes    = 6000  // of the end of each log
	answerBytes = 40000 // of each answer of OpenDaylight
)

// pathFlows matches the flows of the tables that a packet of a pod passes, from its port to a tunnel or to the port of another pod.
var pathFlows = regexp.MustCompile(`table=(0|17|19|21|36|43|45|48|49|50|51|52|55|81|220),`)

// states are OpenDaylight's data of interfaces and tunnels. A tunnel is an interface, too.
var states = []string{
	"/restconf/config/ietf-interfaces:interfaces", "/restconf/operational/ietf-interfaces:interfaces-state", "/restconf/operational/itm-state:tunnels_state",
}

// Evidence returns what shows why a pod does not reach an address: ports, flows and groups of each host, OpenDaylight's state of
// interfaces and tunnels, and the ends of the logs of the bridge and the agents.
func (l *Lab) Evidence(ctx context.Context) string {
	var all strings.Builder
	add := func(what, text string, err error) {
		if err != nil {
			text = err.Error()
		}
		fmt.Fprintf(&all, "---- %s\n%s\n", what, text)
	}
	for _, h := range l.Hosts {
		flows, err := l.flows(ctx, h)
		add("flows of "+h.Name, flows, err)
		for _, dump := range []string{"dump-groups", "dump-ports-desc"} {
			text, err := l.Controller.OpenFlow(ctx, h, dump)
			add(dump+" of "+h.Name, text, err)
		}
	}
	for _, path := range states {
		text, err := l.state(ctx, path)
		add(path, text, err)
	}
	for _, log := range append([]string{"coe-bridge"}, l.agentLogs()...) {
		text, err := os.ReadFile(filepath.Join(l.Logs(), log+".log"))
		add("end of the log of "+log, string(text[max(0, len(text)-logBytes):]), err)
	}
	return all.String()
}

func (l *Lab) agentLogs() (names []string) {
	for _, h := range l.Hosts {
		names = append(names, h.Name+"-agent")
	}
	return names
}

// flows returns the flows of pathFlows on a host, with the packets that they have got.
func (l *Lab) flows(ctx context.Context, h *ovnhost.Host) (string, error) {
	text, err := l.Controller.OpenFlow(ctx, h, "dump-flows", "--stats")
	var found strings.Builder
	for line := range strings.Lines(text) {
		if pathFlows.MatchString(line) {
			found.WriteString(line)
		}
	}
	return found.String(), err
}

// state reads a path from the first member that answers.
func (l *Lab) state(ctx context.Context, path string) (text string, err error) {
	for _, c := range l.members {
		var status int
		var answer []byte
		if status, answer, err = c.Request(ctx, http.MethodGet, path, ""); err == nil {
			return fmt.Sprintf("%s, %d: %s", c.Name(), status, answer[:min(len(answer), answerBytes)]), nil
		}
	}
	return "", err
}
