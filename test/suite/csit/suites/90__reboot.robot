*** Settings ***
Documentation       Reboots of the controller: its power is cut, and what was acknowledged is there afterwards.
...                 Needs KILL_COMMAND and START_COMMAND.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Write Everything
Suite Teardown      Remove All Entries

Test Tags           reboot


*** Variables ***
${PODS}             ${DRAFT02.data}/${POD.container}
# What clients wrote, and what follows from it.
@{WRITTEN}          ${POD.container}    ${SERVICE.container}    ${ENDPOINTS.container}    ${NODE.container}
...                 ${POOL.container}
@{MAPPED}           elan:elan-instances    elan:elan-interfaces    l3vpn:vpn-instances    l3vpn:vpn-interfaces
...                 ietf-interfaces:interfaces    odl-nat:floating-ip-info


*** Test Cases ***
Data Stay
    [Tags]    odl
    ${before}=    Trees    @{WRITTEN}
    Cut The Power
    Switch On
    ${after}=    Trees    @{WRITTEN}
    Dictionaries Should Be Equal    ${after}    ${before}

The Model Stays
    [Documentation]    Addresses, VNIs and route distinguishers are those that were chosen before.
    Wait For Sync    # a case before this one has cut the power: the bridge answers before it has mapped
    ${before}=    Trees    @{MAPPED}
    Cut The Power
    Switch On
    Wait For Sync
    ${after}=    Trees    @{MAPPED}
    Dictionaries Should Be Equal    ${after}    ${before}

The Backend Is Left Alone
    [Documentation]    Rows that agree are not written again.
    [Tags]    ovn
    ${before}=    Northbound    --columns\=_uuid,name,addresses    list    Logical_Switch_Port
    Should Contain    ${before}    ${NAMESPACE}:${POD_NAME}
    Cut The Power
    Switch On
    Wait For Sync
    ${after}=    Northbound    --columns\=_uuid,name,addresses    list    Logical_Switch_Port
    Should Be Equal    ${after}    ${before}

Power Is Cut Again And Again
    [Documentation]    What is acknowledged just before is there just after. OpenDaylight answers before it
    ...    is on disk, and loses it.
    FOR    ${round}    IN RANGE    4
        ${uid}=    Evaluate    str(uuid.uuid4())
        VAR    ${entry}    ${PODS}/pods/${uid}
        Request    PUT    ${entry}    {"pods": [{"uid": "${uid}", "name": "round-${round}"}]}    expected=201
        Cut The Power
        Switch On
        ${answer}=    Request    GET    ${entry}    expected=200
        Should Be Equal    ${answer.json()}[pods][0][name]    round-${round}
    END

What Is Deleted Stays Deleted
    [Documentation]    The same, for what was deleted just before.
    Request    DELETE    ${PODS}/pods/${POD_UID}    expected=200
    Cut The Power
    Switch On
    Request    GET    ${PODS}/pods/${POD_UID}    expected=404

Pods That Went Just Before Are Taken Out Just After
    [Tags]    ovn
    Row Should Exist    Logical_Switch_Port    ${NAMESPACE}:${SECOND_POD_NAME}
    Request    DELETE    ${PODS}/pods/${SECOND_POD_UID}    expected=200
    Cut The Power
    Switch On
    Gone    ${INTERFACES}    ${NAMESPACE}:${SECOND_POD_NAME}
    Wait For Sync
    Row Should Not Exist    Logical_Switch_Port    ${NAMESPACE}:${SECOND_POD_NAME}


*** Keywords ***
Write Everything
    Skip If    $KILL_COMMAND == '' or $START_COMMAND == ''    no command cuts the power
    Begin With Nothing
    FOR    ${entity}    IN    ${POOL}    ${NODE}    ${POD}    ${ENDPOINTS}    ${SERVICE}
        ${body}=    Body    ${entity.body}
        Post    ${DRAFT02}    ${entity}    ${body}    204
    END
    ${body}=    Body    second-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wanted    ${ELAN_INTERFACES}    ${NAMESPACE}:${SECOND_POD_NAME}

Trees
    [Documentation]    What the config tree holds, by container.
    [Arguments]    @{containers}
    VAR    &{trees}
    FOR    ${container}    IN    @{containers}
        ${answer}=    Request    GET    ${DRAFT02.data}/${container}    expected=200
        Set To Dictionary    ${trees}    ${container}=${answer.json()}
    END
    RETURN    ${trees}
