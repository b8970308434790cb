*** Settings ***
Documentation       Reboots of the controller: it is killed and started, and has all acknowledged data afterwards.
...                 Needs KILL_COMMAND and START_COMMAND.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Write All Entries
Suite Teardown      Remove All Entries

Test Tags           reboot


*** Variables ***
${PODS}             ${DRAFT02.data}/${POD.container}
# The containers that clients write, and the containers of the model.
@{WRITTEN}          ${POD.container}    ${SERVICE.container}    ${ENDPOINTS.container}    ${NODE.container}
...                 ${POOL.container}
@{MAPPED}           elan:elan-instances    elan:elan-interfaces    l3vpn:vpn-instances    l3vpn:vpn-interfaces
...                 ietf-interfaces:interfaces    odl-nat:floating-ip-info


*** Test Cases ***
Data Survive A Reboot
    [Tags]    odl
    ${before}=    Trees    @{WRITTEN}
    Kill The Controller
    Start The Controller
    ${after}=    Trees    @{WRITTEN}
    Dictionaries Should Be Equal    ${after}    ${before}

The Model Survives A Reboot
    [Documentation]    Addresses, VNIs and route distinguishers are the same as before.
    Wait For Sync    # an earlier case has killed the controller: the bridge answers before it has mapped
    ${before}=    Trees    @{MAPPED}
    Kill The Controller
    Start The Controller
    Wait For Sync
    ${after}=    Trees    @{MAPPED}
    Dictionaries Should Be Equal    ${after}    ${before}

A Reboot Does Not Change The Backend
    [Documentation]    The bridge does not write rows again that have not changed.
    [Tags]    ovn
    ${before}=    Northbound    --columns\=_uuid,name,addresses    list    Logical_Switch_Port
    Should Contain    ${before}    ${NAMESPACE}:${POD_NAME}
    Kill The Controller
    Start The Controller
    Wait For Sync
    ${after}=    Northbound    --columns\=_uuid,name,addresses    list    Logical_Switch_Port
    Should Be Equal    ${after}    ${before}

Acknowledged Writes Survive A Reboot
    [Documentation]    A write that was acknowledged just before the kill is there afterwards. OpenDaylight loses it,
    ...    because it answers before the write is on disk.
    FOR    ${round}    IN RANGE    4
        ${uid}=    Evaluate    str(uuid.uuid4())
        VAR    ${entry}    ${PODS}/pods/${uid}
        Request    PUT    ${entry}    {"pods": [{"uid": "${uid}", "name": "round-${round}"}]}    expected=201
        Kill The Controller
        Start The Controller
        ${answer}=    Request    GET    ${entry}    expected=200
        Should Be Equal    ${answer.json()}[pods][0][name]    round-${round}
    END

Acknowledged Deletions Survive A Reboot
    [Documentation]    A deletion that was acknowledged just before the kill is not undone.
    Request    DELETE    ${PODS}/pods/${POD_UID}    expected=200
    Kill The Controller
    Start The Controller
    Request    GET    ${PODS}/pods/${POD_UID}    expected=404

Pods Deleted Before A Reboot Are Removed After It
    [Tags]    ovn
    Row Should Exist    Logical_Switch_Port    ${NAMESPACE}:${SECOND_POD_NAME}
    Request    DELETE    ${PODS}/pods/${SECOND_POD_UID}    expected=200
    Kill The Controller
    Start The Controller
    Wait For Removal    ${INTERFACES}    ${NAMESPACE}:${SECOND_POD_NAME}
    Wait For Sync
    Row Should Not Exist    Logical_Switch_Port    ${NAMESPACE}:${SECOND_POD_NAME}


*** Keywords ***
Write All Entries
    Skip If    $KILL_COMMAND == '' or $START_COMMAND == ''    there is no command that kills the controller
    Begin Without Entries
    FOR    ${entity}    IN    ${POOL}    ${NODE}    ${POD}    ${ENDPOINTS}    ${SERVICE}
        ${body}=    Body    ${entity.body}
        Post    ${DRAFT02}    ${entity}    ${body}    204
    END
    ${body}=    Body    second-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wait For Object    ${ELAN_INTERFACES}    ${NAMESPACE}:${SECOND_POD_NAME}

Trees
    [Documentation]    Returns the contents of the config tree, by container.
    [Arguments]    @{containers}
    VAR    &{trees}
    FOR    ${container}    IN    @{containers}
        ${answer}=    Request    GET    ${DRAFT02.data}/${container}    expected=200
        Set To Dictionary    ${trees}    ${container}=${answer.json()}
    END
    RETURN    ${trees}
