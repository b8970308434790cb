// Package ansible runs playbooks with Ansible's own RESTCONF modules (restconf_config and
// restconf_get of ansible.netcommon) against a bridge.
package ansible
