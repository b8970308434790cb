package remotes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for list, want := range map[string][]Remote{
		"":                         nil,
		"unix:/run/ovn/ovnsb.sock": nil,
		"tcp:10.0.0.11:6642":       {{"tcp", "10.0.0.11", 6642}},
		"tcp:10.0.0.11":            {{"tcp", "10.0.0.11", 6640}},
		"ssl:[fd00::1]:16642, tcp:[::1]": {
			{"ssl", "fd00::1", 16642}, {"tcp", "::1", 6640},
		},
		"tcp:10.0.0.11:0,tcp:10.0.0.11:x,ssl:db.example.org:6642": {{"ssl", "db.example.org", 6642}},
	} {
		require.Equal(t, want, Parse(list), list)
	}
	require.Equal(t, []Remote{{"ssl", "10.0.0.1", 6642}, {"tcp", "10.0.0.2", 7}}, Southbound(map[string]string{
		"system-id": "a", "ovn-remote": "ssl:10.0.0.1:6642", "ovn-remote-a": "tcp:10.0.0.2:7", "ovn-remote-b": "tcp:10.0.0.3:8",
	}))
}

func TestCleartext(t *testing.T) {
	for list, want := range map[string]bool{
		"tcp:10.0.0.11:6642": true, "tcp:db.example.org:6642": true, "tcp:[fd00::1]:6642": true,
		"tcp:127.0.0.2:6642": false, "tcp:[::1]:6642": false, "tcp:[::ffff:127.0.0.1]:6642": false, "tcp:localhost:6642": false, "ssl:10.0.0.11:6642": false,
	} {
		require.Equal(t, want, Parse(list)[0].Cleartext(), list)
	}
}

func TestOpenListener(t *testing.T) {
	for manager, want := range map[string]bool{
		"ptcp:6640": true, "ptcp:6640:0.0.0.0": true, "ptcp:6640:[::]": true, "ptcp:6640:10.0.0.11": true,
		"ptcp:6640:127.0.0.1": false, "ptcp:6640:[::1]": false, "pssl:6640": false, "tcp:10.0.0.5:6640": false, "punix:/run/db.sock": false,
	} {
		require.Equal(t, want, OpenListener(manager), manager)
	}
}
